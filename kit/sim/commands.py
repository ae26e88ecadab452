"""Run a command of the control machine, and turn a failure into one that says what was run and what it printed."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from kit.errors import ExitCode, KitError, failure


def run(command: Sequence[str | Path], timeout_s: float = 120) -> str:
    """Standard output as text.

    Raises KitError(INTERNAL, ``sim.command``) when the command fails or is not there, and (TIMEOUT) after `timeout_s`.
    """
    words = [str(part) for part in command]
    where = " ".join(words[:6])
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout_s, check=False)
    except FileNotFoundError:
        raise KitError(
            failure("sim.command", where, "the command on this machine", "not installed", "invoke doctor"),
            ExitCode.INTERNAL,
        ) from None
    except subprocess.TimeoutExpired:
        raise KitError(
            failure("sim.command", where, f"an end in {timeout_s:.0f} s", "none", "look at this machine's load, then again"),
            ExitCode.TIMEOUT,
        ) from None
    if done.returncode != 0:
        tail = (done.stderr or done.stdout).decode(errors="replace").strip()[-600:]
        step = "mend what it says; `invoke doctor` tells what this machine lacks"
        raise KitError(failure("sim.command", where, "exit 0", f"exit {done.returncode}: {tail}", step), ExitCode.INTERNAL)
    return done.stdout.decode(errors="replace")


def succeeds(command: Sequence[str | Path], timeout_s: float = 30) -> bool:
    """Whether a command, used as a question, exits 0."""
    return subprocess.run([str(p) for p in command], capture_output=True, timeout=timeout_s, check=False).returncode == 0


def contained(*command: str | Path) -> list[str | Path]:
    """`command` with its children in namespaces of their own: its mounts and processes end with it, and it with us.

    Nothing it mounts is ever seen outside, whatever ends us or it.
    """
    spaces = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc")
    return ["setpriv", "--pdeathsig", "KILL", "--", *spaces, "--", *command]
