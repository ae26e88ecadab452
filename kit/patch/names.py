"""What a name says about a number. Pure."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase

from kit.patch.model import Meaning

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def snake(name: str) -> str:
    """``kResidentBlocks``, ``RESIDENT_BLOCKS`` and ``residentBlocks`` are all ``resident_blocks``."""
    words = [word.lower() for word in _WORD.findall(name)]
    if len(words) > 1 and words[0] in ("k", "g", "c", "m"):
        words = words[1:]
    return "_".join(words)


def is_same(name: str, meaning: Meaning) -> bool:
    """Whether the name says that this is the setting itself."""
    plain = snake(name)
    if any(fnmatchcase(plain, glob) for glob in meaning.different):
        return False
    return any(fnmatchcase(plain, glob) for glob in meaning.same)


def is_related(name: str, meaning: Meaning) -> bool:
    """Whether a word of the name is near the setting's meaning (``num_sms``, ``grid_size``)."""
    words = snake(name).split("_")
    return any(fnmatchcase(word, glob) for word in words for glob in meaning.related)


def is_numbered(name: str, value: int, path: str = "") -> bool:
    """Whether the name, or the file's, only counts: ``kernel_152`` for 152 tells nothing about what the number is for."""
    stem = path.rsplit("/", 1)[-1].split(".")[0]
    return str(value) in snake(name).split("_") or str(value) in snake(stem).split("_")


def is_unrelated(path: str, name: str, meaning: Meaning) -> bool:
    """Whether a person declared this very constant to be something else."""
    for entry in meaning.unrelated:
        glob, _, wanted = entry.rpartition(":")
        if wanted == name and fnmatchcase(path, glob):
            return True
    return False
