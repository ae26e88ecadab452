"""The outside suite: ``tests/host`` run by pytest with testinfra against one host, one process a host.

It reads the host by its own means, not through our probe: an error that probe and planner share does not pass unseen.
"""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kit import paths
from kit.errors import ExitCode, Failure, KitError, failure
from kit.spec.target import Target

SUITE = paths.ROOT / "tests" / "host"
TIMEOUT_S = 600.0
JUNIT_NAME = "outside.junit.xml"


@dataclass(frozen=True)
class Outside:
    """What the suite said. Skipped counts apart: it is never passed."""

    passed: int
    failed: int
    skipped: int
    failures: tuple[Failure, ...]

    @property
    def ok(self) -> bool:
        """Whether something was asserted, and nothing failed."""
        return self.failed == 0 and self.passed > 0

    def summary(self) -> dict[str, int]:
        """Counts, for the JSON result."""
        return {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}


def run(target: Target, host_dir: Path) -> Outside:
    """Run the suite against one host and keep its output and JUnit file in ``host_dir``.

    ``host_dir`` holds the run's spec.yml and assignment.json, which the suite reads.
    Raises KitError(TIMEOUT) after ``TIMEOUT_S``, KitError(INTERNAL) when pytest itself broke.
    """
    junit = host_dir / JUNIT_NAME
    where = f"{target.spec.name}: outside suite"
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
        raise KitError(
            failure("outside.timeout", where, f"an end within {TIMEOUT_S:.0f} s", "none", ""), ExitCode.TIMEOUT
        ) from error
    (host_dir / "outside.log").write_bytes(done.stdout + done.stderr)
    if done.returncode not in (0, 1) or not junit.is_file():
        tail = (done.stdout + done.stderr).decode(errors="replace").strip().splitlines()[-1:]
        raise KitError(
            failure(
                "outside.broken", where, "pytest exit 0 or 1", f"{done.returncode}: {tail}", f"read {host_dir / 'outside.log'}"
            ),
            ExitCode.INTERNAL,
        )
    return read_junit(junit, where)


def read_junit(junit: Path, where: str) -> Outside:
    """Counts and failures from a JUnit file that pytest wrote."""
    cases = ElementTree.parse(junit).getroot().iter("testcase")  # noqa: S314 - written by our own pytest a moment ago
    passed = failed = skipped = 0
    failures: list[Failure] = []
    for case in cases:
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        if bad is not None:
            failed += 1
            message = (bad.get("message") or "").splitlines()
            failures.append(failure(f"outside.{case.get('name')}", where, "as planned", message[0] if message else "failed", ""))
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return Outside(passed, failed, skipped, tuple(failures))


def merge_junit(host_dirs: Sequence[Path], destination: Path) -> None:
    """One JUnit file from each host's, suites named by host. Raises KitError(INTERNAL, ``junit.write``)."""
    merged = ElementTree.Element("testsuites")
    for folder in host_dirs:
        source = folder / JUNIT_NAME
        if source.is_file():
            for suite in ElementTree.parse(source).getroot().iter("testsuite"):  # noqa: S314 - our own pytest's
                suite.set("name", folder.name)
                merged.append(suite)
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        ElementTree.ElementTree(merged).write(destination, encoding="utf-8", xml_declaration=True)
    except OSError as error:
        found = error.strerror or str(error)
        raise KitError(
            failure("junit.write", str(destination), "a file written", found, "mend that, or name another file"),
            ExitCode.INTERNAL,
        ) from error
