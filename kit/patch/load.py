"""Reads a series folder: ``series.yml`` and the patches it lists. The edge to the file system; decides nothing."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kit.errors import ExitCode, Failure, KitError, failure
from kit.patch.model import Patch, Series, SeriesFile
from kit.spec import explain, strict_yaml

M = TypeVar("M", bound=BaseModel)

SERIES_FILE = "series.yml"
SLOTS_FILE = "slots.yml"
OTHER_FILES = {SERIES_FILE, SLOTS_FILE, "README.md"}
"""What a series folder may hold beside its patches."""
_NAME = re.compile(r"[0-9]{4}-[a-z0-9][a-z0-9-]*\Z")


def find_series(root: Path, name: str | None) -> Path:
    """The folder of a series below ``root`` (``patches/``): by ``<project>/<version>``, by version, or the only one.

    Raises KitError(USAGE) when there is none, or more than one fits.
    """
    folders = sorted(path.parent for path in root.glob(f"*/*/{SERIES_FILE}"))
    names = [f"{folder.parent.name}/{folder.name}" for folder in folders]
    fits = [f for f, full in zip(folders, names, strict=True) if name is None or name in (full, f.name)]
    if len(fits) == 1:
        return fits[0]
    if name is not None and (Path(name) / SERIES_FILE).is_file():
        return Path(name)
    raise KitError(
        failure(
            "patch.series",
            "--series",
            "one of " + ", ".join(names) if names else f"a series below {root}",
            name or f"{len(folders)} series",
            "name the series",
        ),
        ExitCode.USAGE,
    )


def load_series(folder: Path, expected_sha256: str | None = None, route: str | None = None) -> Series:
    """Read and check a whole series; with ``route``, the patches that this route takes (the hash is of the whole).

    ``expected_sha256`` is what an image lock pins; another hash is a tampered or moved series.
    Raises KitError(USAGE) with every failure of every file.
    """
    failures: list[Failure] = []
    texts = {SERIES_FILE: read_text(folder / SERIES_FILE, failures)}
    declared = parse_model(SeriesFile, texts[SERIES_FILE], folder / SERIES_FILE, {}, failures) if not failures else None
    patches: list[Patch] = []
    if declared is not None:
        failures += _listing(folder, declared)
        for name in declared.patches:
            path = folder / f"{name}.yml"
            if _NAME.match(name) and path.is_file():
                before = len(failures)
                texts[path.name] = read_text(path, failures)
                if len(failures) == before:
                    patch = parse_model(Patch, texts[path.name], path, {"name": name}, failures)
                    patches += [patch] if patch is not None else []
    if (folder / SLOTS_FILE).is_file():
        texts[SLOTS_FILE] = read_text(folder / SLOTS_FILE, failures)
    if declared is not None and not failures:
        failures += _agree(folder, declared, patches)
    if failures or declared is None:
        raise KitError(failures, ExitCode.USAGE)
    digest = series_sha256(texts)
    if expected_sha256 is not None and digest != expected_sha256:
        raise KitError(
            failure("patch.series_hash", str(folder), expected_sha256, digest, "restore the series, or review and lock it anew"),
            ExitCode.USAGE,
        )
    if route is not None and route not in declared.routes:
        known = "one of " + ", ".join(declared.routes) if declared.routes else "none: this series has no routes"
        raise KitError(
            failure("patch.route", f"{folder / SERIES_FILE} routes", known, route, "correct the route"), ExitCode.USAGE
        )
    whole = Series(
        name=f"{folder.resolve().parent.name}/{folder.resolve().name}", sha256=digest, declared=declared, patches=tuple(patches)
    )
    return whole.along(route)


def series_sha256(texts: dict[str, str]) -> str:
    """Hex SHA-256 over file names and contents in the order given, each with its length, so that nothing can shift."""
    total = hashlib.sha256()
    for name, text in texts.items():
        for part in (name.encode(), text.encode()):
            total.update(len(part).to_bytes(8, "big") + part)
    return total.hexdigest()


def read_text(path: Path, failures: list[Failure]) -> str:
    """A UTF-8 file; empty, with a failure appended, when it cannot be read."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        failures.append(failure("patch.read", str(path), "a readable UTF-8 file", str(error), "name a series folder"))
        return ""


def parse_model(model: type[M], text: str, path: Path, extra: dict[str, Any], failures: list[Failure]) -> M | None:
    """A typed document from strict YAML; None with every failure appended. ``extra`` adds keys that are not in the text."""
    document = strict_yaml.read(text)
    for problem in document.problems:
        place = explain.where(str(path), problem.line, problem.path)
        failures.append(failure(problem.code, place, problem.expected, problem.found, problem.next))
    if document.problems:
        return None
    if not isinstance(document.value, dict):
        found = type(document.value).__name__
        failures.append(failure("patch.shape", str(path), "keys and values", found, "see docs/patches.md"))
        return None
    try:
        return model.model_validate({**document.value, **extra})
    except ValidationError as error:
        failures.extend(explain.explain(error, model, document, str(path)))
        return None


def _listing(folder: Path, declared: SeriesFile) -> list[Failure]:
    """A patch that is listed but absent, or present but not listed, is never skipped silently."""
    place = str(folder / SERIES_FILE)
    there = {path.stem for path in folder.iterdir() if path.name not in OTHER_FILES}
    out = [
        failure("patch.name", place, "NNNN-name, e.g. 0001-resident-blocks", repr(name), "rename the patch")
        for name in declared.patches
        if not _NAME.match(name)
    ]
    out += [
        failure("patch.missing", place, f"{name}.yml beside it", "no such file", "add the file or take it off the list")
        for name in declared.patches
        if name not in there
    ]
    out += [
        failure("patch.unlisted", str(folder / name), f"listed in {SERIES_FILE}", "not listed", "list it or remove it")
        for name in sorted(there - set(declared.patches))
    ]
    out += [
        failure(
            "patch.route", f"{place} routes.{route}", "patches of the list, in its order", ", ".join(names), "correct the route"
        )
        for route, names in declared.routes.items()
        if list(names) != [name for name in declared.patches if name in names]
    ]
    if len(set(declared.patches)) != len(declared.patches):
        out.append(failure("patch.twice", place, "each patch once", ", ".join(declared.patches), "remove the second"))
    return out


def _agree(folder: Path, declared: SeriesFile, patches: list[Patch]) -> list[Failure]:
    """Each patch is for this series' project, and its expressions are usable."""
    out: list[Failure] = []
    for patch in patches:
        place = str(folder / f"{patch.name}.yml")
        if patch.applies_to.project != declared.project:
            out.append(failure("patch.project", place, declared.project, patch.applies_to.project, "move it to its own series"))
        for number, edit in enumerate(patch.edits):
            if edit.kind != "text-replace":
                continue
            where = f"{place} edits[{number}].anchor"
            try:
                groups = re.compile(edit.anchor).groupindex
            except re.error as error:
                out.append(failure("patch.anchor", where, "a regular expression", str(error), "correct it"))
                continue
            if "value" not in groups:
                out.append(failure("patch.anchor", where, "a group (?P<value>...)", edit.anchor, "name the group"))
    return out
