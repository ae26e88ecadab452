"""``invoke fleet.check`` and ``fleet.schema``. Edges: read the fleet folders, write the schemas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit import paths
from kit.engine.load import folders, load_all, names
from kit.errors import ExitCode, Failure, KitError, failure
from kit.outcome import Outcome
from kit.spec import schema
from kit.spec.load import load_examples, shown, survey
from kit.spec.model import Fleet, HostSpec
from kit.spec.select import groups, targets


def check(directories: Sequence[Path]) -> Outcome:
    """Are all specs of all fleets valid? Every failure of every file; exit 2 when there is one."""
    fleets: list[Fleet] = []
    examples: dict[str, dict[str, HostSpec]] = {}
    failures: list[Failure] = []
    known = known_names()
    for directory in directories:
        fleet, found = survey(directory, known)
        failures += found
        if fleet is None:
            continue
        fleets.append(fleet)
        failures += load_all([directory])[1]
        try:
            examples[fleet.directory] = load_examples(fleet, known)
        except KitError as error:
            failures += error.failures
    try:
        targets(fleets)
    except KitError as error:
        failures += error.failures
    told: list[dict[str, Any]] = [
        {
            "directory": fleet.directory,
            "hosts": sorted(fleet.hosts),
            "groups": dict(groups([fleet])),
            "examples": sorted(examples.get(fleet.directory, ())),
        }
        for fleet in fleets
    ]
    lines = [f"{shown(Path(one['directory']))}: {_valid('host', one['hosts'])}{_more(one['examples'])}" for one in told]
    code = ExitCode.USAGE if failures else ExitCode.OK
    return Outcome(
        "fleet.check",
        result={"fleets": told},
        failures=tuple(failures),
        exit_code=code,
        text="" if failures else "\n".join(lines),
    )


def _valid(noun: str, names: Sequence[str]) -> str:
    count = f"{len(names)} {noun}{'' if len(names) == 1 else 's'}"
    return f"{count} valid: {', '.join(names)}" if names else f"no {noun} yet"


def _more(examples: Sequence[str]) -> str:
    return f"; {_valid('example', examples)}" if examples else ""


def known_names() -> dict[str, tuple[str, ...]]:
    """``engine`` and ``image`` -> the names that a host may choose from."""
    images = sorted(path.parent.name for path in (paths.ROOT / "images").glob("*/image.yml"))
    return {"engine": tuple(names(folders())), "image": tuple(images)}


def write_schemas(folder: Path, check_only: bool) -> Outcome:
    """Generate ``fleet/schema/*.json`` for editors; ``check_only`` compares and exits 3 when one is stale."""
    stale: list[Failure] = []
    written: list[str] = []
    for name, text in schema.files().items():
        path = folder / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        if check_only:
            stale.append(
                failure("schema.stale", shown(path), "what the models say", "something else", "run `invoke fleet.schema`")
            )
        else:
            _write(path, text)
            written.append(shown(path))
    code = ExitCode.CHANGE_PENDING if stale else ExitCode.OK
    text = "wrote " + ", ".join(written) if written else "" if stale else "schemas are up to date"
    return Outcome("fleet.schema", result={"written": written}, failures=tuple(stale), exit_code=code, text=text)


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        found = error.strerror or str(error)
        raise KitError(
            failure("schema.write", shown(path), "a file written", found, "correct that and run it again"), ExitCode.INTERNAL
        ) from error


def schema_folder() -> Path:
    """Where this source tree keeps its generated schemas."""
    return paths.ROOT / "fleet" / "schema"
