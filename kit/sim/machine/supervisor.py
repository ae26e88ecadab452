"""Keeps one simulated host running: starts systemd-nspawn, starts it again when the host reboots, ends it on SIGTERM.

Run as a file (``python -I supervisor.py CONFIG``), standard library only, so that it is small and outlives the
command that started it. CONFIG is JSON: ``command`` (argv), ``console`` (log file), ``log``, ``cgroups`` (folders to
enter before nspawn starts), ``late_writes`` ([[file, text], ...]: written as soon as the file appears).
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

REBOOT = 133
"""Exit status of systemd-nspawn after ``reboot`` inside."""
_child: subprocess.Popen[bytes] | None = None
_stopping = False


def _say(log: Path, text: str) -> None:
    with log.open("a") as handle:
        handle.write(f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime())} {text}\n")


def _stop(_signal: int, _frame: FrameType | None) -> None:
    global _stopping
    _stopping = True
    if _child is not None and _child.poll() is None:
        _child.kill()


def _enter(cgroups: list[str]) -> None:
    for folder in cgroups:
        (Path(folder) / "cgroup.procs").write_text(str(os.getpid()))


def _end_members(cgroups: list[str], timeout_s: float = 5) -> None:
    """The container's own processes: its PID 1 may live on when nspawn is killed."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        members = {int(pid) for top in cgroups for file in Path(top).rglob("cgroup.procs") for pid in _lines(file)}
        if not members:
            return
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _lines(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []  # the group went with its last process


def _late(writes: list[list[str]], deadline: float) -> list[list[str]]:
    """Write what can be written now; returns the rest. nspawn makes some control groups only while it starts."""
    left = []
    for file, text in writes:
        if Path(file).exists():
            Path(file).write_text(text)
        elif time.monotonic() < deadline:
            left.append([file, text])
        else:
            raise TimeoutError(f"{file} did not appear")
    return left


def _run_once(config: dict[str, Any]) -> int:
    global _child
    with Path(config["console"]).open("ab") as console:
        _child = subprocess.Popen(
            config["command"],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            preexec_fn=lambda: _enter(config["cgroups"]),
        )
    writes = config["late_writes"]
    deadline = time.monotonic() + 20
    while writes and _child.poll() is None:
        try:
            writes = _late(writes, deadline)
        except OSError:
            # A host without the limit it was asked for would prove the wrong thing: rather none.
            _child.kill()
            raise
        time.sleep(0.02)
    return _child.wait()


def main() -> int:
    """Until the host powers off, fails or this process is told to stop."""
    config = json.loads(Path(sys.argv[1]).read_text())
    log = Path(config["log"])
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    while True:
        _say(log, "start")
        try:
            status = _run_once(config)
        finally:
            _end_members(config["cgroups"])
        _say(log, f"ended with {status}")
        if _stopping or status != REBOOT:
            return 0 if _stopping else status


if __name__ == "__main__":
    sys.exit(main())
