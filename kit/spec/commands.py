"""``invoke fleet.check`` and ``fleet.schema``. Edges: read the fleet folders, write the schemas."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kit import paths
from kit.errors import ExitCode, Failure, KitError, failure
from kit.outcome import Outcome
from kit.spec import schema
from kit.spec.load import load_fleet, shown
from kit.spec.model import Fleet
from kit.spec.select import groups, targets


def check(directories: Sequence[Path]) -> Outcome:
    """Are all specs of all fleets valid? Every failure of every file; exit 2 when there is one."""
    fleets: list[Fleet] = []
    failures: list[Failure] = []
    for directory in directories:
        try:
            fleet = load_fleet(directory)
        except KitError as error:
            failures += error.failures
            continue
        fleets.append(fleet)
        failures += _profiles(fleet)
    try:
        targets(fleets)
    except KitError as error:
        failures += error.failures
    told: list[dict[str, Any]] = [
        {"directory": fleet.directory, "hosts": sorted(fleet.hosts), "groups": dict(groups([fleet]))} for fleet in fleets
    ]
    lines = [
        f"{shown(Path(fleet.directory))}: {_count(len(fleet.hosts), 'host')} valid: {', '.join(fleet.hosts)}" for fleet in fleets
    ]
    code = ExitCode.USAGE if failures else ExitCode.OK
    return Outcome(
        "fleet.check",
        result={"fleets": told},
        failures=tuple(failures),
        exit_code=code,
        text="" if failures else "\n".join(lines),
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _profiles(fleet: Fleet) -> list[Failure]:
    """Engine names are checked once there are engine profiles at all; until then nothing reads the name."""
    folder = Path(fleet.directory) / "engines"
    if not folder.is_dir():
        return []
    known = sorted(path.stem for path in folder.glob("*.yml"))
    return [
        failure(
            "spec.unknown_engine", f"hosts/{name}.yml engine", f"one of {', '.join(known)}", repr(spec.engine), "add the profile"
        )
        for name, spec in fleet.hosts.items()
        if spec.engine not in known
    ]


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
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written.append(shown(path))
    code = ExitCode.CHANGE_PENDING if stale else ExitCode.OK
    text = "wrote " + ", ".join(written) if written else "" if stale else "schemas are up to date"
    return Outcome("fleet.schema", result={"written": written}, failures=tuple(stale), exit_code=code, text=text)


def schema_folder() -> Path:
    """Where this source tree keeps its generated schemas."""
    return paths.ROOT / "fleet" / "schema"
