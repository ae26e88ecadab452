"""The old value under other names: where a person must look before the setting is changed. Pure.

A constant that is the setting by name belongs to the edit; one with a telling word near the setting's meaning, or in a file
that the setting passes through, or in C and CUDA, is a candidate; a number that only counts (``tile_152``) is neither.
"""

from __future__ import annotations

import re

import libcst as cst

from kit.patch.answer import Splice, shown, site
from kit.patch.bindings import Kind, Module, last_name
from kit.patch.c_constants import C_SUFFIXES, blanked, constants, launches
from kit.patch.follow import Place
from kit.patch.model import Meaning
from kit.patch.names import is_numbered, is_related, is_same, is_unrelated
from kit.patch.package import Package, Unparsable
from kit.patch.report import Site
from kit.patch.text_edits import c_site
from kit.patch.tree import Tree

DATA_SUFFIXES = (".cmake", "CMakeLists.txt", "Makefile", ".mk", ".json", ".toml", ".yaml", ".yml", ".cfg", ".ini", ".sh")
MAX_LINE = 2000
"""Longer lines are generated data."""


def strays(package: Package, value: int, meaning: Meaning, chain: frozenset[str], splices: tuple[Splice, ...]) -> list[Site]:
    """Candidates that no splice covers, as sites with the reason each is one."""
    covered = {(s.path, s.start) for s in splices}
    out: list[Site] = []
    number = re.compile(rb"\b%d\b" % value)
    for path in package.paths:
        if number.search(package.tree.read(path)):
            try:
                module = package.module(path)
            except Unparsable:
                continue
            out += _python(module, value, meaning, path in chain, covered)
    for path in package.tree.considered(C_SUFFIXES):
        out += _c(package.tree, path, value, meaning, covered)
    for path in package.tree.considered(DATA_SUFFIXES):
        out += _lines(package.tree.read(path), path, value, meaning, covered)
    for path in package.paths:
        out += _flags(package.tree.read(path), path, value, meaning)
    return out


def _lines(content: bytes, path: str, value: int, meaning: Meaning, covered: set[tuple[str, int]]) -> list[Site]:
    """``RESIDENT_BLOCKS 152`` of build files, ``"num_sms": 152`` of data."""
    number = re.compile(rb"(?<![\w.-])%d(?![\w.])|=%d\b" % (value, value))
    out: list[Site] = []
    offset = 0
    for line, text in enumerate(content.splitlines(keepends=True), 1):
        match = number.search(text)
        if match and len(text) < MAX_LINE and not any(path == p and offset <= at < offset + len(text) for p, at in covered):
            out += _beside(text, path, line, meaning)
        offset += len(text)
    return out


def _beside(text: bytes, path: str, line: int, meaning: Meaning) -> list[Site]:
    words = re.findall(r"[A-Za-z_]\w*", text.decode(errors="replace"))
    near = [word for word in words if is_same(word, meaning) or is_related(word, meaning)]
    if not near or all(is_unrelated(path, word, meaning) for word in near):
        return []
    found = shown(text.decode(errors="replace"))
    return [Site(file=path, line=line, found=found, note="the old value beside a word near the setting")]


def _flags(content: bytes, path: str, value: int, meaning: Meaning) -> list[Site]:
    """``-DRESIDENT_BLOCKS=152`` among compiler flags in Python."""
    flag = re.compile(rb"-D([A-Za-z_]\w*)=%d\b" % value)
    out: list[Site] = []
    for match in flag.finditer(content):
        name = match[1].decode()
        if (is_same(name, meaning) or is_related(name, meaning)) and not is_unrelated(path, name, meaning):
            line = content.count(b"\n", 0, match.start()) + 1
            found = shown(content.splitlines()[line - 1].decode(errors="replace"))
            out.append(Site(file=path, line=line, found=found, note="a compiler flag with the old value"))
    return out


def _python(module: Module, value: int, meaning: Meaning, on_chain: bool, covered: set[tuple[str, int]]) -> list[Site]:
    finder = _Named(module, value)
    module.tree.visit(finder)
    shift = 3 if module.content.startswith(b"\xef\xbb\xbf") else 0
    out: list[Site] = []
    for name, node, constant in finder.found:
        if (module.path, module.span(node)[0] + shift) in covered or is_unrelated(module.path, name, meaning):
            continue
        place = Place(node, module.scope)
        if is_same(name, meaning):
            out.append(site(place, f"{name} is named like the setting, but does not lead to it"))
        elif is_related(name, meaning):
            out.append(site(place, f"{name} holds the old value and may be the setting"))
        elif on_chain and constant and not is_numbered(name, value, module.path):
            out.append(site(place, f"{name} holds the old value in a file that the setting passes through"))
    return out


class _Named(cst.CSTVisitor):
    """Integer literals of one value, each with the name that stands nearest to it."""

    def __init__(self, module: Module, value: int) -> None:
        super().__init__()
        self.value = value
        self.found: list[tuple[str, cst.Integer, bool]] = []
        for scope in (module.scope, *module.inner.values()):
            for bindings in scope.bindings.values():
                for binding in bindings:
                    if binding.kind in (Kind.VALUE, Kind.PARAMETER):
                        self.take(binding.name, binding.value, not isinstance(scope.node, cst.FunctionDef | cst.Lambda))

    def take(self, name: str, node: cst.CSTNode | None, constant: bool = False) -> None:
        if isinstance(node, cst.Integer) and node.evaluated_value == self.value:
            self.found.append((name, node, constant))

    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self.take(node.keyword.value, node.value)

    def visit_DictElement(self, node: cst.DictElement) -> None:
        if isinstance(node.key, cst.SimpleString):
            self.take(str(node.key.evaluated_value), node.value)

    def visit_Comparison(self, node: cst.Comparison) -> None:
        for target in node.comparisons:
            self.take(_last(node.left), target.comparator)
            self.take(_last(target.comparator), node.left)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        for line in node.body.body:
            for part in line.body if isinstance(line, cst.SimpleStatementLine) else ():
                if isinstance(part, cst.Return):
                    self.take(node.name.value, part.value)


def _last(node: cst.BaseExpression) -> str:
    return last_name(node.func if isinstance(node, cst.Call) else node)


def _c(tree: Tree, path: str, value: int, meaning: Meaning, covered: set[tuple[str, int]]) -> list[Site]:
    content = tree.read(path)
    out: list[Site] = []
    told: set[int] = set()
    for constant in constants(content):
        if constant.value == value:
            told.add(constant.line)
        if constant.value != value or (path, constant.start) in covered or is_unrelated(path, constant.name, meaning):
            continue
        named = is_same(constant.name, meaning) or is_related(constant.name, meaning)
        if named or (constant.fixed and not is_numbered(constant.name, value, path)):
            out.append(c_site(path, content, constant, f"{constant.name} holds the old value and may be the setting"))
    if re.search(rb"\b%d\b" % value, content) is None:
        return out
    lines = content.splitlines()
    for line in launches(content, value):
        found = shown(lines[line - 1].decode(errors="replace"))
        out.append(Site(file=path, line=line, found=found, note="a launch with the old value"))
    for number, text in enumerate(blanked(content).splitlines(), 1):
        if number not in told and re.search(rb"\b%d\b" % value, text):
            out += [
                s.model_copy(update={"found": shown(lines[number - 1].decode(errors="replace"))})
                for s in _beside(text, path, number, meaning)
            ]
    return out
