"""The outside suite: ``tests/host`` run by pytest with testinfra against one host, one process a host.

It reads the host by its own means, not through our probe: an error that probe and planner share does not pass unseen.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kit import paths
from kit.errors import ExitCode, Failure, KitError, failure
from kit.record import files
from kit.record.documents import outside_cases
from kit.record.model import OUTSIDE, OutsideCase
from kit.spec.target import Target

SUITE = paths.ROOT / "tests" / "host"
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Outside:
    """What the suite said. Skipped counts apart: it is never passed."""

    cases: tuple[OutsideCase, ...]
    failures: tuple[Failure, ...]
    """One for each case that failed."""

    @property
    def ok(self) -> bool:
        """Whether something was asserted, and nothing failed."""
        return not self.failures and any(case.outcome == "passed" for case in self.cases)

    @property
    def skipped(self) -> tuple[str, ...]:
        """What was not asserted, and why."""
        return tuple(f"{case.name}: {case.message}" for case in self.cases if case.outcome == "skipped")

    def summary(self) -> dict[str, int]:
        """Counts, for the JSON result."""
        return {outcome: sum(case.outcome == outcome for case in self.cases) for outcome in ("passed", "failed", "skipped")}


def run(target: Target, host_dir: Path) -> Outside:
    """Run the suite against one host and keep its output and JUnit file in ``host_dir``.

    ``host_dir`` holds the run's spec.yml and assignment.json, which the suite reads.
    Raises KitError(TIMEOUT) after ``TIMEOUT_S``, KitError(INTERNAL) when pytest itself broke or the record has no room.
    """
    junit, log = host_dir / OUTSIDE, host_dir / "outside.log"
    where = f"{target.spec.name}: seen from outside"
    command = [
        sys.executable, "-m", "pytest", str(SUITE), "-q", "-p", "no:cacheprovider",
        "--rootdir", str(SUITE), f"--record={host_dir}", f"--junitxml={junit}",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(paths.ROOT)}
    try:
        done = subprocess.run(
            command,
            cwd=paths.ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        step = "look at the host's load, then again"
        raise KitError(
            failure("outside.timeout", where, f"an end within {TIMEOUT_S:.0f} s", "none", step), ExitCode.TIMEOUT
        ) from error
    files.write_atomic(log, done.stdout + done.stderr)
    problems: list[str] = []
    cases = outside_cases(junit, problems)
    if done.returncode not in (0, 1) or problems or not cases:
        last = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-1:]
        found = "; ".join([f"exit {done.returncode}", *problems, *last])
        raise KitError(
            failure("outside.broken", where, "pytest exit 0 or 1, and its JUnit file", found, f"read {log}"), ExitCode.INTERNAL
        )
    return judged(cases, where, log)


def judged(cases: Sequence[OutsideCase], where: str, log: Path) -> Outside:
    """The cases with a failure for each that failed, or one when nothing was asserted at all. Pure."""
    step = f"where the plan says so too, mend it there; else one of the two is wrong: report it with {log}"
    failures = [
        failure(
            f"outside.{case.name}", f"{where}: {case.what}" if case.what else where, case.expected or "as planned",
            case.found or case.message or "failed", step,
        )
        for case in cases
        if case.outcome == "failed"
    ]  # fmt: skip
    if not failures and all(case.outcome == "skipped" for case in cases):
        failures = [failure("outside.nothing", where, "something asserted", "everything skipped", f"read {log}")]
    return Outside(tuple(cases), tuple(failures))


def write_junit(document: bytes, destination: Path) -> None:
    """Raises KitError(INTERNAL, ``junit.write``)."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        destination.write_bytes(document)
    except OSError as error:
        found = error.strerror or str(error)
        raise KitError(
            failure("junit.write", str(destination), "a file written", found, "mend that, or name another file"),
            ExitCode.INTERNAL,
        ) from error
