"""Reads ``fleet/engines/NAME.yml``. Edge: files; every failure of a file at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kit import paths
from kit.engine.lint import lint
from kit.engine.model import EngineProfile
from kit.errors import ExitCode, Failure, KitError, failure
from kit.spec.load import load_document, shown

FOLDER = "engines"


def folders() -> list[Path]:
    """Fleet folders that may hold profiles, in order; the checkout's own comes last."""
    own = paths.ROOT / "fleet"
    return [*(d for d in paths.fleet_dirs() if d != own), own]


def names(directories: Sequence[Path]) -> list[str]:
    """Every profile there is. Raises KitError(USAGE) for a folder that cannot be read: it is not empty."""
    found = set()
    for directory in directories:
        try:
            found |= {path.stem for path in (directory / FOLDER).iterdir() if path.suffix == ".yml"}
        except FileNotFoundError:
            continue
        except OSError as error:
            where, step = shown(directory / FOLDER), "make it a folder that you may read"
            problem = failure("engine.unreadable", where, "a folder of engine profiles", error.strerror or str(error), step)
            raise KitError(problem, ExitCode.USAGE) from error
    return sorted(found)


def load_profile(name: str, directories: Sequence[Path]) -> EngineProfile:
    """The first profile of that name. Raises KitError(USAGE) when there is none, or with all that is wrong with it."""
    for directory in directories:
        path = directory / FOLDER / f"{name}.yml"
        if path.is_file():
            return load_document(directory, path, EngineProfile, lambda profile: lint(profile, name))
    known = ", ".join(names(directories)) or "no profile at all"
    where = ", ".join(shown(directory / FOLDER) for directory in directories)
    raise KitError(failure("engine.unknown", where, f"one of {known}", repr(name), "name one, or add its file"), ExitCode.USAGE)


def load_all(directories: Sequence[Path]) -> tuple[dict[str, EngineProfile], list[Failure]]:
    """Every profile that can be read, and what is wrong with the others."""
    good: dict[str, EngineProfile] = {}
    failures: list[Failure] = []
    for name in names(directories):
        try:
            good[name] = load_profile(name, directories)
        except KitError as error:
            failures += error.failures
    return good, failures
