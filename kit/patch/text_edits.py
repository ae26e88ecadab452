"""Edits of what is not Python: named constants of headers, and anchored lines of any text. Counted and value-checked. Pure."""

from __future__ import annotations

import re

from kit.patch.answer import Answer, Splice, shown, unique
from kit.patch.c_constants import Constant, constants
from kit.patch.model import CConstant, TextReplace
from kit.patch.names import is_same
from kit.patch.report import Site, State
from kit.patch.tree import Tree, matches

SEEN = "Look at what the file says now, then correct the patch."


def _line(content: bytes, line: int) -> str:
    lines = content.splitlines()
    return shown(lines[line - 1].decode(errors="replace")) if 0 < line <= len(lines) else ""


def c_site(path: str, content: bytes, constant: Constant, note: str = "") -> Site:
    """A constant as a place for a person."""
    return Site(file=path, line=constant.line, found=_line(content, constant.line), note=note)


def c_constant(tree: Tree, edit: CConstant, untouched: tuple[str, ...]) -> Answer:
    """``c-constant`` against a tree: constants whose names say that they are the setting."""
    old: list[tuple[str, Constant]] = []
    new: list[tuple[str, Constant]] = []
    for path in tree.considered():
        if not matches(path, edit.files):
            continue
        for constant in constants(tree.read(path)):
            if is_same(constant.name, edit.meaning) and constant.value in (edit.old, edit.new):
                (old if constant.value == edit.old else new).append((path, constant))
    sites_old = unique(c_site(path, tree.read(path), c, f"-> {edit.new}") for path, c in old)
    sites_new = unique(c_site(path, tree.read(path), c) for path, c in new)
    number = len(old) + len(new)
    if not edit.count.holds(number):
        reason = f"{number} header constants hold {edit.old} or {edit.new} under such a name, {edit.count} expected"
        return Answer(State.AMBIGUOUS if number else State.CONFLICT, reason, (*sites_old, *sites_new), SEEN)
    if old and new:
        reason = f"some header constants are {edit.new} already, others are {edit.old}"
        return Answer(State.CONFLICT, reason, (*sites_old, *sites_new), "Start from the plugin's own source.")
    kernels = [path for path, _ in old if matches(path, untouched)]
    if kernels:
        reason = f"{kernels[0]} holds the constant, and the series promises to leave such files untouched"
        return Answer(State.AMBIGUOUS, reason, sites_old, SEEN)
    if not number:
        return Answer(State.ALREADY, "")
    files = frozenset(path for path, _ in (*old, *new))
    if new:
        return Answer(State.ALREADY, f"{len(new)} header constants are {edit.new}", sites_new, chain=files)
    splices = tuple(Splice(path, c.start, c.end, tree.read(path)[c.start : c.end], str(edit.new).encode()) for path, c in old)
    return Answer(State.APPLIES, f"{len(old)} header constants {edit.old} -> {edit.new}", sites_old, "", splices, files)


def text_replace(tree: Tree, edit: TextReplace, untouched: tuple[str, ...]) -> Answer:
    """``text-replace`` against a tree: each line that the anchor finds must hold the old value, or all the new one."""
    anchor = re.compile(edit.anchor.encode(), re.MULTILINE)
    sites: dict[str, list[Site]] = {"old": [], "new": [], "other": []}
    splices: list[Splice] = []
    for path in tree.considered():
        if not matches(path, edit.files):
            continue
        content = tree.read(path)
        for match in anchor.finditer(content):
            start, end = match.span("value")
            line = content.count(b"\n", 0, start) + 1
            value = match["value"]
            kind = "old" if value == edit.old.encode() else "new" if value == edit.new.encode() else "other"
            note = f"-> {edit.new}" if kind == "old" else ""
            sites[kind].append(Site(file=path, line=line, found=_line(content, line), note=note))
            if kind == "old":
                splices.append(Splice(path, start, end, value, edit.new.encode()))
    everything = unique([*sites["old"], *sites["new"], *sites["other"]])
    number = sum(map(len, sites.values()))
    if sites["other"]:
        return Answer(State.CONFLICT, f"the anchor finds another value than {edit.old!r}", unique(sites["other"]), SEEN)
    if not edit.count.holds(number):
        reason = f"the anchor finds {number} places, {edit.count} expected"
        return Answer(State.AMBIGUOUS if number else State.CONFLICT, reason, everything, SEEN)
    if sites["old"] and sites["new"]:
        return Answer(State.CONFLICT, "some places are changed already, others are not", everything, SEEN)
    kernels = [splice.path for splice in splices if matches(splice.path, untouched)]
    if kernels:
        return Answer(State.CONFLICT, f"{kernels[0]} is one of the files that the series promises to leave", everything, SEEN)
    files = frozenset(site.file for site in everything)
    if splices:
        return Answer(State.APPLIES, f"{edit.old!r} -> {edit.new!r}", everything, "", tuple(splices), files)
    return Answer(State.ALREADY, f"holds {edit.new!r}" if number else "", everything, chain=files)
