"""Processes and the boot of this machine: a pid alone may have been given to another process."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")


class Process(NamedTuple):
    """What ``/proc/PID/stat`` says of a process."""

    parent: int
    started: int
    """Clock ticks after boot: with the pid, it names one process of this boot."""
    ended: bool
    """A zombie: it ended, and nobody has waited for it yet."""


def look(pid: int, proc: Path = PROC) -> Process | None:
    """The process of that number; None when there is none."""
    try:
        # The command name, in brackets, may itself hold spaces and brackets.
        fields = (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return Process(int(fields[1]), int(fields[19]), fields[0] in "ZX")
    except (OSError, ValueError, IndexError):
        return None


def started(pid: int) -> int | None:
    """Clock ticks after boot at which a process started; None when there is none, or only its remains."""
    found = look(pid)
    return None if found is None or found.ended else found.started


def boot_id() -> str:
    """Which boot of this machine it is; empty when it cannot be told."""
    try:
        return (PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
