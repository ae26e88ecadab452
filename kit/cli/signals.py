"""A run that is interrupted ends cleanly: its children are stopped, what it knows is told, the status is 128+N."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from kit import procfs
from kit.detached import DETACHED

TERM_GRACE_S = 5.0
EXIT_GRACE_S = 30.0
"""After this long a run that will not end by itself is ended."""

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal asked us to stop."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number

    @property
    def exit_code(self) -> int:
        """128+N."""
        return 128 + self.number


class Guard:
    """Turns the first signal into :class:`Interrupted` in the main thread, and a second one into an immediate end."""

    def __init__(self, last_words: Callable[[Interrupted], None]) -> None:
        """``last_words`` prints the outcome when the run does not end by itself in time."""
        self._last_words = last_words
        self._first: Interrupted | None = None
        self._children: dict[int, int] = {}

    def install(self) -> None:
        """Take over SIGINT, SIGTERM and SIGHUP; one that was ignored at our start (nohup) stays ignored."""
        for number in HANDLED:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._first is not None:
            kill(descendants(os.getpid()), signal.SIGKILL)
            os._exit(self._first.exit_code)
        self._first = Interrupted(number)
        # Only those that run now: what a cleanup starts from here on must be let finish.
        self._children = descendants(os.getpid())
        kill(self._children, signal.SIGTERM)
        threading.Thread(target=self._watch, args=(self._first,), daemon=True).start()
        raise self._first

    def settle(self) -> None:
        """Before we exit: wait for the stopped children a while, then end those that stay."""
        deadline = time.monotonic() + TERM_GRACE_S
        while alive(self._children) and time.monotonic() < deadline:
            time.sleep(0.02)
        kill(self._children, signal.SIGKILL)

    def _watch(self, interrupted: Interrupted) -> None:
        time.sleep(TERM_GRACE_S)
        kill(self._children, signal.SIGKILL)
        time.sleep(EXIT_GRACE_S - TERM_GRACE_S)
        self._last_words(interrupted)
        os._exit(interrupted.exit_code)


def descendants(pid: int, proc: Path = Path("/proc")) -> dict[int, int]:
    """Processes below ``pid``: pid -> start time (ticks since boot), without those detached on purpose and theirs."""
    children: dict[int, list[tuple[int, int]]] = {}
    for entry in proc.iterdir():
        if entry.name.isdigit() and (found := procfs.look(int(entry.name), proc)):
            children.setdefault(found.parent, []).append((int(entry.name), found.started))
    out: dict[int, int] = {}
    waiting = [pid]
    while waiting:
        for child, started in children.get(waiting.pop(), []):
            if not _detached(proc / str(child)):
                out[child] = started
                waiting.append(child)
    return out


def kill(processes: dict[int, int], number: int) -> None:
    """Signal those that are still the same process (a pid may have been given to another)."""
    for pid, started in processes.items():
        found = procfs.look(pid)
        if found and found.started == started:
            try:
                os.kill(pid, number)
            except (ProcessLookupError, PermissionError):
                continue


def alive(processes: dict[int, int]) -> bool:
    """Whether any of them still runs (one that ended and was not waited for does not)."""
    return any(procfs.started(pid) == started for pid, started in processes.items())


def _detached(entry: Path) -> bool:
    try:
        return f"{DETACHED}=".encode() in (entry / "environ").read_bytes()
    except OSError:
        return False
