"""``patch-check`` as an :class:`~kit.outcome.Outcome`; the command line only prints it."""

from __future__ import annotations

from pathlib import Path

from kit.errors import ExitCode, Failure, KitError, failure
from kit.outcome import Outcome
from kit.patch.check import patch_check
from kit.patch.load import find_series
from kit.patch.post import Interpreter
from kit.patch.report import Held, PatchReport, State
from kit.patch.text import table
from kit.paths import ROOT

TASK = "patch-check"


def check(
    source: Path,
    series: str | Path | None = None,
    interpreter: Interpreter | None = None,
    route: str | None = None,
) -> Outcome:
    """Exit 0 when every patch applies or is there already, 5 when a person must look, 2 for a bad path or series.

    ``series`` is a folder, ``<project>/<version>``, a version, or None for the only one there is.
    ``route`` looks at the patches of one route only.
    """
    try:
        folder = series if isinstance(series, Path) else find_series(ROOT / "patches", series)
        report = patch_check(source, folder, interpreter, route)
    except KitError as error:
        return Outcome(TASK, failures=tuple(error.failures), exit_code=error.exit_code)
    failures = tuple(_failures(source, report))
    return Outcome(
        TASK,
        result={
            "series": report.series,
            "series_sha256": report.series_sha256,
            "source": str(source),
            "patches": [p.model_dump(mode="json") for p in report.patches],
            "post_conditions": [c.model_dump(mode="json") for c in report.post_conditions],
            "proven": report.proven,
        },
        failures=failures,
        skipped=tuple(
            f"{c.patch}: {c.condition} was not looked at: {c.reason}" for c in report.post_conditions if c.held is Held.SKIPPED
        ),
        exit_code=ExitCode.OK if report.fits else ExitCode.GATE_FAILED,
        text=table(report, str(source)),
    )


def _failures(source: Path, report: PatchReport) -> list[Failure]:
    out = []
    for patch in report.patches:
        if patch.state in (State.APPLIES, State.ALREADY):
            continue
        first = patch.sites[0] if patch.sites else None
        where = f"{source}/{first.file}:{first.line}" if first is not None else str(source)
        code = f"patch.{patch.state}"
        out.append(failure(code, f"{patch.name} at {where}", "applies or already", f"{patch.state}: {patch.reason}", patch.next))
    return out
