"""The Python files of a tree as modules: found by import, parsed when needed. Nothing is run."""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from kit.patch.bindings import Import, Module
from kit.patch.tree import Tree

_USUAL_ROOTS = ("", "src/", "python/", "lib/")
_PROJECT_MARKS = ("pyproject.toml", "setup.py", "setup.cfg")


_AT = re.compile(r"error at (\d+):\d+: (.*)")
"""Where LibCST's parser stopped; its ``raw_line`` is one further when the error is at a line's end."""


class Unparsable(Exception):
    """A file that is no Python this kit can read; ``line`` counts from 1."""

    def __init__(self, path: str, line: int, reason: str) -> None:
        super().__init__(f"{path}:{line}: {reason}")
        self.path, self.line, self.reason = path, line, reason


@dataclass(frozen=True)
class Outside:
    """A module or name that is not in the tree, by its dotted name."""

    name: str


@dataclass(frozen=True)
class Several:
    """An import that more than one file of the tree could satisfy."""

    paths: tuple[str, ...]


@lru_cache(maxsize=512)
def _parse(path: str, content: bytes, foreign: bool) -> Module:
    try:
        return Module(path, content, cst.parse_module(content), foreign)
    except cst.ParserSyntaxError as error:
        told = _AT.search(error.message)
        line, reason = (int(told[1]), told[2]) if told else (error.raw_line, error.message.strip().splitlines()[0])
        raise Unparsable(path, line, reason if len(reason) <= 100 else reason[:97] + "...") from error
    except (UnicodeDecodeError, LookupError, SyntaxError) as error:
        raise Unparsable(path, 1, f"not readable as Python text: {error}") from error
    except RecursionError as error:
        raise Unparsable(path, 1, "nested too deeply to be read") from error


@lru_cache(maxsize=4096)
def _syntax_error(content: bytes) -> tuple[int, str] | None:
    """Line and reason, as this Python's compiler tells them; None when it has nothing to say."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(content)
    except SyntaxError as error:
        return error.lineno or 0, error.msg
    except (ValueError, RecursionError) as error:
        return 0, str(error)
    return None


class Package:
    """Modules of a tree, and of the contract's files when they are given (read only, never edited)."""

    def __init__(self, tree: Tree, contract: Tree | None = None) -> None:
        self.tree = tree
        self.contract = contract
        self.paths = tree.considered((".py",))
        self._ends: dict[str, list[str]] = {}
        for path in self.paths:
            self._ends.setdefault(path.rsplit("/", 1)[-1], []).append(path)

    def module(self, path: str, foreign: bool = False) -> Module:
        """The parsed file. Raises Unparsable."""
        tree = self.contract if foreign and self.contract is not None else self.tree
        return _parse(path, tree.read(path), foreign)

    def broken(self) -> list[Unparsable]:
        """Files that do not parse. The compiler of this Python is asked first (fast), LibCST has the last word."""
        out: list[Unparsable] = []
        for path in self.paths:
            error = _syntax_error(self.tree.read(path))
            if error is not None:
                try:
                    self.module(path)
                except Unparsable as also:
                    line, reason = error
                    out.append(Unparsable(path, line or also.line, reason))
        return out

    def mentioning(self, words: set[str]) -> Iterator[Module]:
        """Modules whose text holds one of the words. Files that do not parse are left out (``broken`` tells)."""
        if not words:
            return
        pattern = re.compile(rb"\b(" + b"|".join(re.escape(w.encode()) for w in sorted(words)) + rb")\b")
        for path in self.paths:
            if pattern.search(self.tree.read(path)):
                try:
                    yield self.module(path)
                except Unparsable:
                    continue

    def find(self, wanted: Import, asking: Module) -> Module | Outside | Several:
        """The module that an import statement means."""
        if wanted.level:
            folder = asking.path.split("/")[:-1]
            folder = folder[: len(folder) - (wanted.level - 1)]
            stem = "/".join([*folder, *[p for p in wanted.module.split(".") if p]])
            pool = self._pool(asking.foreign)
            for path in (f"{stem}.py", f"{stem}/__init__.py" if stem else "__init__.py"):
                if path in pool:
                    return self.module(path, asking.foreign)
            return Outside("." * wanted.level + wanted.module)
        return self.by_name(wanted.module, asking)

    def by_name(self, name: str, asking: Module | None = None) -> Module | Outside | Several:
        """The module of an absolute dotted name: the file whose path ends so, nearest to who asks."""
        if name.split(".")[0] in sys.stdlib_module_names:
            return Outside(name)
        stem = name.replace(".", "/")
        found = [
            (path, path[: len(path) - len(end)])
            for end in (f"{stem}.py", f"{stem}/__init__.py")
            for path in self._ends.get(end.rsplit("/", 1)[-1], [])
            if (path == end or path.endswith(f"/{end}")) and self._is_root(path[: len(path) - len(end)], name)
        ]
        if asking is not None and len(found) > 1:
            around = [(path, root) for path, root in found if asking.path.startswith(root)]
            longest = max((len(root) for _, root in around), default=0)
            found = [(path, root) for path, root in around if len(root) == longest] or found
        if len(found) == 1:
            return self.module(found[0][0])
        if len(found) > 1:
            return Several(tuple(path for path, _ in found))
        if self.contract is not None:
            for path in (f"{stem}.py", f"{stem}/__init__.py"):
                if path in self.contract.files:
                    try:
                        return self.module(path, True)
                    except Unparsable:
                        break
        return Outside(name)

    def _is_root(self, folder: str, name: str) -> bool:
        """Whether absolute imports may start in a folder: never inside a package, for a bare name only where projects start."""
        if f"{folder}__init__.py" in self.tree.files:
            return False
        above = "".join(f"{part}/" for part in folder.split("/")[:-2])
        marked = any(f"{place}{mark}" in self.tree.files for place in (folder, above) for mark in _PROJECT_MARKS)
        return "." in name or folder in _USUAL_ROOTS or marked

    def _pool(self, foreign: bool) -> Mapping[str, object]:
        tree = self.contract if foreign and self.contract is not None else self.tree
        return tree.files
