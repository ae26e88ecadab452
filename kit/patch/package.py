"""The Python files of a tree as modules: found by import, parsed when needed. Nothing is run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import libcst as cst

from kit.patch.bindings import Binding, Import, Kind, Module, last_name
from kit.patch.summary import NoSummary, Summary, summary, syntax_error
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


class Package:
    """Modules of a tree, and of the contract's files when they are given (read only, never edited)."""

    def __init__(self, tree: Tree, contract: Tree | None = None) -> None:
        self.tree = tree
        self.contract = contract
        self.paths = tree.considered((".py",))
        self.inside = tree.root.resolve().name if "__init__.py" in tree.files else ""
        """The tree's own package name, when the tree is a package and not a project around one."""
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
            told = syntax_error(self.tree.read(path))
            if told is not None:
                try:
                    self.module(path)
                except Unparsable as error:
                    out.append(Unparsable(path, told.line or error.line, told.reason))
        return out

    def calling(self, names: set[str]) -> Iterator[Module]:
        """Modules that call something of these names."""
        return self._where(lambda quick: quick.calls, names)

    def using(self, names: set[str]) -> Iterator[Module]:
        """Modules that read one of these names, or an attribute so called."""
        return self._where(lambda quick: quick.loads, names)

    def giving(self, argument: str) -> Iterator[Module]:
        """Modules with a call that names this argument."""
        return self._where(lambda quick: quick.keywords, {argument})

    def _where(self, of: Callable[[Summary], set[str]], names: set[str]) -> Iterator[Module]:
        for path, quick in self._quick(names):
            # A newer syntax than this Python's has no summary: then the file itself has to be looked at.
            if isinstance(quick, NoSummary) or not of(quick).isdisjoint(names):
                try:
                    yield self.module(path)
                except Unparsable:
                    continue

    def known_as(self, names: set[str]) -> set[str]:
        """Names under which one of these is known in any file: one step, see :meth:`kit.patch.uses.Uses.aliases`."""
        out: set[str] = set()
        for path, quick in self._quick(names):
            if isinstance(quick, NoSummary):
                out |= self._slowly(path, names)
            else:
                for name in names & quick.known_as.keys():
                    out |= quick.known_as[name]
        return out

    def _slowly(self, path: str, names: set[str]) -> set[str]:
        try:
            module = self.module(path)
        except Unparsable:
            return set()
        return {alias for scope in module.scopes() for alias, bindings in scope.bindings.items() if _stands_for(bindings, names)}

    def _quick(self, names: set[str]) -> Iterator[tuple[str, Summary | NoSummary]]:
        for path in self._holding(names):
            yield path, summary(self.tree.read(path))

    def mentioning(self, words: set[str]) -> Iterator[Module]:
        """Modules whose text holds one of the words, in strings too. Files that do not parse are left out (``broken`` tells)."""
        for path in self._holding(words):
            try:
                yield self.module(path)
            except Unparsable:
                continue

    def _holding(self, words: set[str]) -> Iterator[str]:
        needles = [word.encode() for word in sorted(words) if word]
        for path in self.paths:
            content = self.tree.read(path)
            if any(needle in content for needle in needles):
                yield path

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
        if self.inside:
            # A name that does not start with the package's own is another package, whatever its files are called.
            stem = (stem.removeprefix(f"{self.inside}/") if "/" in stem else "__init__") if _starts(name, self.inside) else "//"
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
            stem = name.replace(".", "/")
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
            return not folder and bool(self.inside)
        above = "".join(f"{part}/" for part in folder.split("/")[:-2])
        marked = any(f"{place}{mark}" in self.tree.files for place in (folder, above) for mark in _PROJECT_MARKS)
        return "." in name or folder in _USUAL_ROOTS or marked

    def _pool(self, foreign: bool) -> Mapping[str, object]:
        tree = self.contract if foreign and self.contract is not None else self.tree
        return tree.files


def _starts(name: str, package: str) -> bool:
    return name.split(".")[0] == package


def _stands_for(bindings: list[Binding], names: set[str]) -> bool:
    """Whether a name is bound to one of ``names``: imported, re-assigned or derived from it."""
    for binding in bindings:
        sources = [binding.imported.name] if binding.imported is not None else []
        if binding.kind is Kind.VALUE and binding.value is not None:
            sources.append(last_name(binding.value))
        if isinstance(binding.node, cst.ClassDef):
            sources += [last_name(base.value) for base in binding.node.bases]
        if any(source in names for source in sources):
            return True
    return False
