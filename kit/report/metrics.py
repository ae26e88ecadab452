"""A Prometheus textfile for node_exporter: how far each host has drifted, and when each task last ended well.

https://github.com/prometheus/docs/blob/main/docs/instrumenting/exposition_formats.md (text format 0.0.4).
"""

from __future__ import annotations

import fcntl
import math
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.files import replace
from kit.outcome import HostOutcome, Outcome
from kit.record.environment import describe

_LINE = re.compile(r'kit_last_success_timestamp_seconds\{host="((?:[^"\\]|\\.)*)",task="((?:[^"\\]|\\.)*)"\} (\S+)')
_DRIFT = re.compile(r'kit_drift_items\{host="((?:[^"\\]|\\.)*)"\} (\S+)')


@dataclass(frozen=True)
class Values:
    """What the file says. A host whose drift is not known has no ``drift`` entry: unknown is never zero."""

    drift: Mapping[str, int]
    last_success: Mapping[tuple[str, str], float]
    """(host, task) -> UNIX time."""


def write(path: Path, outcome: Outcome, now: float | None = None, known: Collection[str] | None = None) -> None:
    """Bring the file up to date with an outcome of ``drift`` (or another task), atomically, under a lock.

    The last successes of this and other hosts stay, the drift of hosts that were not looked at too; those of hosts that
    are not ``known`` any more (None: keep all) go. Raises KitError(INTERNAL, ``metrics.write``).
    """
    try:
        with _locked(path.parent):
            before = parse(path.read_text()) if path.exists() else Values({}, {})
            after = merge(before, outcome, time.time() if now is None else now, known)
            about = describe()
            replace(path, render(after, about["kit_version"], about["git_commit"] or "").encode())
    except OSError as error:
        found = error.strerror or str(error)
        raise KitError(
            failure("metrics.write", str(path), "a file written, its folder there", found, "mend that, or name another file"),
            ExitCode.INTERNAL,
        ) from error


def merge(before: Values, outcome: Outcome, now: float, known: Collection[str] | None = None) -> Values:
    """The file's values after an outcome. Pure."""
    drift = {host: count for host, count in before.drift.items() if host not in outcome.hosts}
    success = dict(before.last_success)
    for host, end in outcome.hosts.items():
        count = drift_items(end)
        if count is not None:
            drift[host] = count
            # A drift check that found drift has itself gone well: what is watched is that it still runs.
            success[host, outcome.task] = now
        elif end.exit_code == ExitCode.OK:
            success[host, outcome.task] = now
    if known is not None:
        drift = {host: count for host, count in drift.items() if host in known}
        success = {key: at for key, at in success.items() if key[0] in known}
    return Values(drift, success)


def drift_items(end: HostOutcome) -> int | None:
    """Steps that are not ``keep``; None when the host was not planned, so that nothing is known. Pure."""
    steps = end.result.get("steps")
    if not isinstance(steps, list | tuple):
        return None
    return sum(1 for step in steps if step.get("action") != "keep")


def render(values: Values, version: str, commit: str) -> str:
    """The file's text. Pure."""
    lines = [
        "# HELP kit_build_info The b300kit that wrote this file.",
        "# TYPE kit_build_info gauge",
        f'kit_build_info{{version="{_escape(version)}",commit="{_escape(commit)}"}} 1',
        "# HELP kit_drift_items Things on the host that are not as declared; absent when the host was not read.",
        "# TYPE kit_drift_items gauge",
        *(f'kit_drift_items{{host="{_escape(host)}"}} {count}' for host, count in sorted(values.drift.items())),
        "# HELP kit_last_success_timestamp_seconds When the task last ended well on the host, UNIX time.",
        "# TYPE kit_last_success_timestamp_seconds gauge",
        *(
            f'kit_last_success_timestamp_seconds{{host="{_escape(host)}",task="{_escape(task)}"}} {at:.3f}'
            for (host, task), at in sorted(values.last_success.items())
        ),
    ]
    return "\n".join(lines) + "\n"


def parse(text: str) -> Values:
    """What an earlier run wrote; lines of any other kind are left out. Pure."""
    success = {}
    for match in _LINE.finditer(text):
        at = _number(match[3])
        if at is not None:
            success[_unescape(match[1]), _unescape(match[2])] = at
    drift = {}
    for match in _DRIFT.finditer(text):
        count = _number(match[2])
        if count is not None:
            drift[_unescape(match[1])] = int(count)
    return Values(drift, success)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _unescape(value: str) -> str:
    return re.sub(r"\\(.)", lambda match: "\n" if match[1] == "n" else match[1], value)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Two cron jobs for two groups may write one file at the same moment. Locks the folder: no extra file is left."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
