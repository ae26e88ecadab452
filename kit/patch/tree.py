"""A source tree, read once: which files it has, their bytes and hashes, with edits laid over. Reads; never writes."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

from kit.errors import ExitCode, KitError, failure

_HIDDEN = {"__pycache__"}
MAX_FILE_BYTES = 64 * 1024 * 1024
"""Larger files are carried and hashed, but never read for edits."""


@lru_cache(maxsize=256)
def _regex(pattern: str) -> re.Pattern[str]:
    out, rest = "", pattern
    while rest:
        if rest.startswith("**/"):
            out, rest = out + "(?:.*/)?", rest[3:]
        elif rest.startswith("**"):
            out, rest = out + ".*", rest[2:]
        elif rest[0] == "*":
            out, rest = out + "[^/]*", rest[1:]
        elif rest[0] == "?":
            out, rest = out + "[^/]", rest[1:]
        else:
            out, rest = out + re.escape(rest[0]), rest[1:]
    return re.compile(out + r"\Z")


def matches(path: str, globs: Iterable[str]) -> bool:
    """Whether a relative path fits a glob: ``*`` within one folder, ``**`` over folders."""
    return any(_regex(glob).match(path) for glob in globs)


class Tree:
    """The files of a source tree. Hidden folders (``.git``) and byte code are no part of it.

    ``leave_out`` names what is carried along but never looked at for edits; ``only`` the folders to walk (all by default).
    ``overlay`` holds edited bytes.
    """

    def __init__(self, root: Path, leave_out: tuple[str, ...] = (), only: tuple[str, ...] = ()) -> None:
        self.root = root
        self.only = only
        self.leave_out = leave_out
        self.overlay: dict[str, bytes] = {}
        self._bytes: dict[str, bytes] = {}
        self.files: dict[str, os.stat_result] = {}
        self.links: dict[str, str] = {}
        self._considered: list[str] | None = None
        self._walk()

    def _walk(self) -> None:
        if not self.root.is_dir():
            found = "a file" if self.root.exists() else "no such folder"
            raise KitError(failure("patch.source", str(self.root), "a source tree", found, "give its folder"), ExitCode.USAGE)
        stack = [path for path in self.only if (self.root / path).is_dir()] or ([] if self.only else [""])
        while stack:
            folder = stack.pop()
            try:
                entries = sorted(os.scandir(self.root / folder), key=lambda e: e.name)
            except OSError as error:
                raise self._unreadable(folder, error) from error
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                if entry.is_symlink():
                    self.links[path] = str(Path(entry.path).readlink())
                elif entry.is_dir():
                    if not entry.name.startswith(".") and entry.name not in _HIDDEN:
                        stack.append(path)
                elif stat.S_ISREG(entry.stat().st_mode):
                    self.files[path] = entry.stat()

    def _unreadable(self, path: str, error: OSError) -> KitError:
        found = error.strerror or str(error)
        return KitError(failure("patch.source", str(self.root / path), "readable", found, "check the tree"), ExitCode.USAGE)

    def considered(self, suffixes: tuple[str, ...] = ()) -> list[str]:
        """Paths that edits and searches look at, sorted."""
        if self._considered is None:
            self._considered = [
                path
                for path in sorted(self.files)
                if self.files[path].st_size <= MAX_FILE_BYTES and not matches(path, self.leave_out)
            ]
        return [path for path in self._considered if not suffixes or path.endswith(suffixes)]

    def read(self, path: str) -> bytes:
        """The bytes of a file, edits included. Raises KitError(USAGE) when it cannot be read."""
        if path in self.overlay:
            return self.overlay[path]
        if path not in self._bytes:
            try:
                self._bytes[path] = (self.root / path).read_bytes()
            except OSError as error:
                raise self._unreadable(path, error) from error
        return self._bytes[path]

    def original(self, path: str) -> bytes:
        """The bytes on disk, without edits."""
        if path not in self._bytes:
            saved = self.overlay.pop(path, None)
            self.read(path)
            if saved is not None:
                self.overlay[path] = saved
        return self._bytes[path]

    def with_edits(self, edits: Mapping[str, bytes]) -> Tree:
        """The same tree with more edits laid over; nothing is read again."""
        other = object.__new__(Tree)
        other.__dict__.update(self.__dict__)
        other.overlay = {**self.overlay, **edits}
        return other

    def hashes(self, with_edits: bool) -> dict[str, str]:
        """Hex SHA-256 of every file, those left out of edits too."""
        read = self.read if with_edits else self.original
        return {path: hashlib.sha256(read(path)).hexdigest() for path in sorted(self.files)}


def tree_sha256(hashes: Mapping[str, str], links: Mapping[str, str]) -> str:
    """One hash over paths, file hashes and links."""
    total = hashlib.sha256()
    for path in sorted(hashes):
        total.update(f"file\0{path}\0{hashes[path]}\n".encode(errors="surrogateescape"))
    for path in sorted(links):
        total.update(f"link\0{path}\0{links[path]}\n".encode(errors="surrogateescape"))
    return total.hexdigest()
