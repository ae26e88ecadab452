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
        elif on_chain and constant and not is_numbered(name, value):
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
        if is_same(constant.name, meaning) or is_related(constant.name, meaning) or not is_numbered(constant.name, value):
            out.append(c_site(path, content, constant, f"{constant.name} holds the old value and may be the setting"))
    if re.search(rb"\b%d\b" % value, content) is None:
        return out
    lines = content.splitlines()
    for line in launches(content, value):
        found = shown(lines[line - 1].decode(errors="replace"))
        out.append(Site(file=path, line=line, found=found, note="a launch with the old value"))
    for number, line_text in enumerate(blanked(content).splitlines(), 1):
        if number not in told and re.search(rb"\b%d\b" % value, line_text):
            words = re.findall(r"[A-Za-z_]\w*", line_text.decode(errors="replace"))
            if any(is_related(word, meaning) or is_same(word, meaning) for word in words):
                found = shown(lines[number - 1].decode(errors="replace"))
                out.append(Site(file=path, line=number, found=found, note="the old value beside a word near the setting"))
    return out
