"""Where a source tree declares its ``nvidia_megakernel`` entry point. Reads texts of the tree; runs nothing."""

from __future__ import annotations

import configparser
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kit.patch.tree import Tree

GROUP = "sglang.srt.plugins"
NAME = "nvidia_megakernel"
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\Z")
_IN_SETUP = re.compile(NAME + r"\s*=\s*(?P<target>[\w.]+:[\w.]+)")


@dataclass(frozen=True)
class Entry:
    """One declaration: ``target`` is ``module:function``."""

    file: str
    target: str


def entries(tree: Tree) -> list[Entry]:
    """Every declaration in project files of the tree."""
    out = []
    for path in tree.considered():
        name = path.rsplit("/", 1)[-1]
        if name not in ("pyproject.toml", "setup.cfg", "setup.py", "entry_points.txt"):
            continue
        text = tree.read(path).decode(errors="replace")
        out += [Entry(path, target.strip()) for target in _targets(name, text) if _TARGET.match(target.strip())]
    return out


def _targets(name: str, text: str) -> Iterator[str]:
    if name == "pyproject.toml":
        try:
            document = tomllib.loads(text)
        except tomllib.TOMLDecodeError:
            return
        for keys in (("project", "entry-points", GROUP), ("tool", "poetry", "plugins", GROUP)):
            found: Any = document
            for key in keys:
                found = found.get(key, {}) if isinstance(found, dict) else {}
            if isinstance(found, dict) and isinstance(found.get(NAME), str):
                yield found[NAME]
    elif name == "setup.py":
        yield from (match["target"] for match in _IN_SETUP.finditer(text))
    else:
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None, strict=False)
        try:
            parser.read_string(text)
        except configparser.Error:
            return
        if name == "setup.cfg":
            block = parser.get("options.entry_points", GROUP, fallback="")
            yield from (match["target"] for match in _IN_SETUP.finditer(block))
        elif parser.has_option(GROUP, NAME):
            yield parser.get(GROUP, NAME)
