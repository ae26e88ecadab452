"""``patch_check``: does a series still fit a source tree? ``apply_series``: a patched copy of it, whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from kit.errors import ExitCode, Failure, KitError, failure
from kit.patch.contract import contract_dir
from kit.patch.engine import judge
from kit.patch.load import load_series
from kit.patch.model import Series
from kit.patch.post import Interpreter, check_conditions, skipped, write_tree
from kit.patch.report import Held, PatchReport, PatchResult, PostResult, State
from kit.patch.tree import Tree, matches, tree_sha256
from kit.paths import cache_dir

RECEIPT = ".b300kit/patches.json"
"""In the patched tree: what was done, with the hashes from before. A hidden folder is no part of a tree."""
SCHEMA = 1


def patch_check(source: Path, series: Path, interpreter: Interpreter | None = None, route: str | None = None) -> PatchReport:
    """Judge every patch of a series folder (or of one of its routes) against a source tree. Writes nothing there.

    ``interpreter`` says where post-conditions import the result; by default this Python with SGLang's pinned contract
    files, fetched into the cache when they are not there yet.
    Raises KitError(USAGE) for a source or series that cannot be read.
    """
    declared = load_series(series, route=route)
    return _report(declared, Tree(source, declared.declared.leave_out), interpreter)[0]


def apply_series(
    source: Path,
    series: Path,
    destination: Path,
    interpreter: Interpreter | None = None,
    expected_sha256: str | None = None,
    proven: bool = True,
    route: str | None = None,
) -> PatchReport:
    """Write a patched copy of ``source`` to ``destination``, in one step, or nothing.

    ``expected_sha256`` is the series hash that a lock pins. ``proven`` asks that every post-condition was looked at.
    A destination that already holds this very result is left alone; the report then says ``already``.
    Raises KitError(APPLY_FAILED) when a person must look, with every reason; KitError(USAGE) for bad input.
    """
    declared = load_series(series, expected_sha256, route)
    tree = Tree(source, declared.declared.leave_out)
    if _same(destination, source):
        where = str(destination)
        raise KitError(
            failure("patch.destination", where, "another folder than the source", "the source", "name a new folder"),
            ExitCode.USAGE,
        )
    report, edited = _report(declared, tree, interpreter)
    bad = _failures(report, proven)
    if bad:
        raise KitError(bad, ExitCode.APPLY_FAILED)
    receipt = _receipt(declared, tree, edited, report)
    if destination.is_dir() and any(destination.iterdir()):
        _must_be_it(destination, receipt)
        done = tuple(p.model_copy(update={"state": State.ALREADY}) for p in report.patches)
        return report.model_copy(update={"patches": done})
    _write(edited, destination, receipt)
    return report


def _report(series: Series, tree: Tree, interpreter: Interpreter | None) -> tuple[PatchReport, Tree]:
    patches, edited = judge(series, tree)
    report = PatchReport(series=series.name, series_sha256=series.sha256, patches=patches)
    if not report.fits:
        return report, tree
    conditions = _conditions(series, edited, interpreter)
    broken = {c.patch: c for c in conditions if c.held is Held.BROKEN}
    patches = tuple(_with(p, broken[p.name]) if p.name in broken else p for p in patches)
    return report.model_copy(update={"patches": patches, "post_conditions": conditions}), edited


def _conditions(series: Series, edited: Tree, interpreter: Interpreter | None) -> tuple[PostResult, ...]:
    if interpreter is None:
        contract = contract_dir(series.declared.contract, cache_dir())
        if contract is None:
            pinned = f"{series.declared.contract.package} {series.declared.contract.version}"
            return skipped(series, f"the plugin contract of {pinned} is not in the cache and could not be fetched")
        interpreter = replace(Interpreter(), contract=contract)
    return check_conditions(series, edited, interpreter)


def _with(patch: PatchResult, broken: PostResult) -> PatchResult:
    reason = f"after the edits, {broken.condition} does not hold: {broken.reason}"
    return patch.model_copy(
        update={"state": State.CONFLICT, "reason": reason, "next": "The edits are right only on paper: look."}
    )


def _failures(report: PatchReport, proven: bool) -> list[Failure]:
    out = [
        failure(f"patch.{p.state}", f"{report.series}/{p.name}", "applies or already", f"{p.state}: {p.reason}", p.next)
        for p in report.patches
        if p.state not in (State.APPLIES, State.ALREADY)
    ]
    if proven:
        out += [
            failure("patch.not_proven", f"{report.series}/{c.patch}", c.condition, f"{c.held}: {c.reason}", "make it importable")
            for c in report.post_conditions
            if c.held is Held.SKIPPED
        ]
    return out


def _receipt(series: Series, tree: Tree, edited: Tree, report: PatchReport) -> dict[str, Any]:
    """What was done, from the bytes themselves. Holds no time and no path of this machine: the same input, the same receipt."""
    before, after = tree.hashes(with_edits=False), edited.hashes(with_edits=True)
    changed = {path: {"before": before[path], "after": after[path]} for path in before if before[path] != after[path]}
    for path in changed:
        if matches(path, series.declared.untouched):
            place = f"{series.name}: {path}"
            raise KitError(failure("patch.untouched", place, "unchanged", "an edit", "mend the patch"), ExitCode.APPLY_FAILED)
    rest = {path: value for path, value in before.items() if path not in changed}
    return {
        "schema_version": SCHEMA,
        "series": series.name,
        "series_sha256": series.sha256,
        "route": series.route,
        "source_sha256": tree_sha256(before, tree.links),
        "result_sha256": tree_sha256(after, tree.links),
        "changed": changed,
        "untouched": {"files": len(rest), "sha256": tree_sha256(rest, tree.links)},
        "patches": [p.model_dump(mode="json") for p in report.patches],
        "post_conditions": [c.model_dump(mode="json") for c in report.post_conditions],
    }


def _write(edited: Tree, destination: Path, receipt: dict[str, Any]) -> None:
    """Build beside the destination, prove it by hash, then rename: killed at any moment, there is all of it or nothing."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{destination.name}.", dir=destination.parent))
    try:
        write_tree(edited, fresh / "tree")
        _prove(fresh / "tree", receipt, str(destination))
        place = fresh / "tree" / RECEIPT
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(receipt, indent=1, sort_keys=True) + "\n")
        _sync(fresh / "tree")
        (fresh / "tree").rename(destination)
        _sync_folder(destination.parent)
    except OSError as error:
        found = error.strerror or str(error)
        where = str(destination)
        raise KitError(
            failure("patch.write", where, "a writable place", found, "free space or rights"), ExitCode.APPLY_FAILED
        ) from error
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def _prove(folder: Path, receipt: dict[str, Any], where: str) -> None:
    """Read back what was written: the changed files are as meant, all others as they were."""
    there = Tree(folder)
    found = there.hashes(with_edits=False)
    rest = {path: value for path, value in found.items() if path not in receipt["changed"]}
    same = tree_sha256(rest, there.links) == receipt["untouched"]["sha256"]
    if not same or tree_sha256(found, there.links) != receipt["result_sha256"]:
        raise KitError(
            failure("patch.write", where, "the tree as judged", "other bytes", "check the disk; nothing was kept"),
            ExitCode.APPLY_FAILED,
        )


def _must_be_it(destination: Path, receipt: dict[str, Any]) -> None:
    """Accept an existing destination only when its bytes, not its receipt, are this result."""
    there = Tree(destination)
    found = tree_sha256(there.hashes(with_edits=False), there.links)
    if found != receipt["result_sha256"]:
        raise KitError(
            failure(
                "patch.destination",
                str(destination),
                f"absent, empty or the tree {receipt['result_sha256'][:12]}",
                f"another tree {found[:12]}",
                "remove it or name a new folder",
            ),
            ExitCode.USAGE,
        )


def _same(a: Path, b: Path) -> bool:
    return a.resolve() == b.resolve()


def _sync(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as handle:
                os.fsync(handle.fileno())


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def receipt_sha256(destination: Path) -> str:
    """The hash of a patched tree's receipt, for an image record. Raises KitError(USAGE) when there is none."""
    try:
        return hashlib.sha256((destination / RECEIPT).read_bytes()).hexdigest()
    except OSError as error:
        found = error.strerror or str(error)
        raise KitError(failure("patch.receipt", str(destination), RECEIPT, found, "apply the series"), ExitCode.USAGE) from error
