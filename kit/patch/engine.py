"""A whole series against one tree: each patch on top of those before it, nothing written. Pure apart from reading the tree."""

from __future__ import annotations

from dataclasses import replace

from kit.patch.answer import Answer, CannotPlace, merge, site, splice, unique
from kit.patch.follow import Stuck
from kit.patch.model import Edit, Meaning, Patch, PythonArgument, Series
from kit.patch.package import Package
from kit.patch.python_edits import LOOK, PythonEdits
from kit.patch.report import PatchResult, Site, State
from kit.patch.strays import strays
from kit.patch.text_edits import c_constant, text_replace
from kit.patch.tree import Tree

VERSION_ARGUMENT = "api_version"
VERSION_CONSTANT = "MEGAKERNEL_API_VERSION"


def judge(series: Series, tree: Tree) -> tuple[tuple[PatchResult, ...], Tree]:
    """One result a patch, in order, and the tree with the edits of every patch that applies laid over."""
    results: list[PatchResult] = []
    unfit = _unparsable(tree)
    for patch in series.patches:
        answer = unfit or _wrong_interface(patch, tree) or _patch(patch, tree, series.declared.untouched)
        if answer.state is State.APPLIES:
            edited, answer = _edited(patch, tree, answer, series.declared.untouched)
            tree = edited
        results.append(
            PatchResult(name=patch.name, state=answer.state, sites=answer.sites, reason=answer.reason, next=answer.next)
        )
    return tuple(results), tree


def _unparsable(tree: Tree) -> Answer | None:
    broken = Package(tree).broken()
    if not broken:
        return None
    sites = unique(Site(file=b.path, line=b.line, found=_line(tree, b.path, b.line), note=b.reason) for b in broken)
    reason = f"{broken[0].path}:{broken[0].line} does not parse: {broken[0].reason}"
    return Answer(State.CONFLICT, reason, sites, "Get an intact release; a plugin that does not parse cannot be imported.")


def _line(tree: Tree, path: str, line: int) -> str:
    lines = tree.read(path).decode(errors="replace").splitlines()
    return lines[line - 1].strip()[:160] if 0 < line <= len(lines) else ""


def _wrong_interface(patch: Patch, tree: Tree) -> Answer | None:
    """The interface version is the part of ``Applies-To`` that the source itself can tell."""
    edits = PythonEdits(Package(tree))
    sites: list[Site] = []
    found: set[int] = set()
    for call in edits.calls("MegakernelSpec"):
        given = edits.given(call, VERSION_ARGUMENT, 6)
        if given is None or isinstance(given, Stuck):
            continue
        value = edits.values.of(given)
        if not isinstance(value, Stuck):
            found.add(value.value)
            sites += [site(place) for place in value.places]
    wrong = found - set(patch.applies_to.interface)
    if not wrong:
        return None
    wanted = " or ".join(map(str, patch.applies_to.interface))
    reason = f"this plugin speaks interface version {', '.join(map(str, sorted(wrong)))}; the patch is for {wanted}"
    return Answer(State.CONFLICT, reason, unique(sites), "Use the series for this plugin version, or review the patch for it.")


def _patch(patch: Patch, tree: Tree, untouched: tuple[str, ...]) -> Answer:
    package = Package(tree)
    python = PythonEdits(package)
    try:
        answers = [_edit(edit, tree, python, untouched) for edit in patch.edits]
    except CannotPlace as error:
        return Answer(State.CONFLICT, str(error), (), "Change the source by hand.")
    told = [a for a in answers if a.reason]
    if {a.state for a in told} == {State.APPLIES, State.ALREADY}:
        reason = "half applied: " + "; ".join(a.reason for a in told)
        return Answer(State.CONFLICT, reason, unique(s for a in told for s in a.sites), "Start from the plugin's own source.")
    merged = merge(answers)
    if merged.state not in (State.APPLIES, State.AMBIGUOUS):
        return merged
    extra = [s for edit in patch.edits if isinstance(edit, PythonArgument) for s in _strays(package, edit, merged)]
    if not extra:
        return merged
    if merged.state is State.AMBIGUOUS:
        return replace(merged, sites=unique([*merged.sites, *extra]))
    reason = f"{merged.reason}, but the old value also stands elsewhere: {_few(extra)}"
    remedy = "If a candidate is another quantity, declare it under meaning.unrelated; if it is the setting, add an edit for it."
    return Answer(State.AMBIGUOUS, reason, unique([*merged.sites, *extra]), remedy)


def _few(sites: list[Site]) -> str:
    first = ", ".join(f"{s.file}:{s.line}" for s in sites[:3])
    return first if len(sites) <= 3 else f"{first} and {len(sites) - 3} more"


def _strays(package: Package, edit: PythonArgument, merged: Answer) -> list[Site]:
    meaning: Meaning = edit.meaning
    return strays(package, edit.old, meaning, merged.chain, merged.splices)


def _edit(edit: Edit, tree: Tree, python: PythonEdits, untouched: tuple[str, ...]) -> Answer:
    if edit.kind == "python-argument":
        answer = python.argument(edit)
    elif edit.kind == "python-member":
        answer = python.member(edit)
    elif edit.kind == "c-constant":
        return c_constant(tree, edit, untouched)
    else:
        return text_replace(tree, edit, untouched)
    return answer


def _edited(patch: Patch, tree: Tree, answer: Answer, untouched: tuple[str, ...]) -> tuple[Tree, Answer]:
    """The edited tree, once a second look finds the patch there: an edit that did not take is never reported as one that did."""
    try:
        paths = {change.path for change in answer.splices}
        edits = {path: splice(tree.read(path), [c for c in answer.splices if c.path == path]) for path in sorted(paths)}
    except CannotPlace as error:
        return tree, Answer(State.CONFLICT, str(error), answer.sites, LOOK)
    edited = tree.with_edits(edits)
    again = _unparsable(edited) or _patch(patch, edited, untouched)
    if again.state is State.ALREADY:
        return edited, answer
    reason = f"the edit did not take: after it, {again.state}: {again.reason}"
    return tree, Answer(State.CONFLICT, reason, answer.sites, "Change the source by hand, or mend the patch.")
