"""Runs a tool of the control machine, and turns its failure into one that says what was run and what it printed."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

from kit.errors import ExitCode, KitError, failure

log = logging.getLogger("kit.image")

PACKAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "git": "git", "ssh-keygen": "openssh-client", "gzip": "gzip"}
"""Tool -> the Debian package that has it."""
_TAIL = 1500


def run(
    command: Sequence[str | Path],
    code: str,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    exit_code: int = ExitCode.APPLY_FAILED,
    cwd: Path | None = None,
) -> str:
    """Standard output as text.

    Raises KitError(USAGE, ``image.tool``) when the tool is not there; ``code`` with the last words when it fails;
    KitError(TIMEOUT) when it does not end. What it started ends with it.
    """
    return run_both(command, code, timeout_s, environment, exit_code, cwd)[0]


def run_both(
    command: Sequence[str | Path],
    code: str,
    timeout_s: float,
    environment: Mapping[str, str] | None = None,
    exit_code: int = ExitCode.APPLY_FAILED,
    cwd: Path | None = None,
    stdin: bytes = b"",
) -> tuple[str, str]:
    """Standard output and standard error as text, with ``stdin`` as input; raises as :func:`run` does."""
    words = [str(word) for word in command]
    need(words[0])
    try:
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            env=os.environ | dict(environment or {}),
            cwd=cwd,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise KitError(failure(code, shown(words), f"an end in {timeout_s:.0f} s", "none"), ExitCode.TIMEOUT) from None
    out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
    if done.returncode != 0:
        raise Failed(code, words, done.returncode, out, err, exit_code)
    return out, err


def run_steps(command: Sequence[str | Path], code: str, timeout_s: float, environment: Mapping[str, str]) -> None:
    """A long one: its STEP lines are shown as it goes, all it said is kept for :class:`Failed`; raises as :func:`run` does."""
    words = [str(word) for word in command]
    need(words[0])
    lines: list[str] = []
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=os.environ | dict(environment),
        start_new_session=True,
        text=True,
        errors="replace",
    )
    late = threading.Event()

    def stop() -> None:
        late.set()
        _end(process)

    timer = threading.Timer(timeout_s, stop)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            level = logging.INFO if line.startswith(("[", "STEP")) else logging.DEBUG
            log.log(level, "%s", line.strip()[:160])
        status = process.wait()
    except BaseException:
        _end(process)
        raise
    finally:
        timer.cancel()
    if late.is_set():
        raise KitError(failure(code, shown(words), f"an end in {timeout_s:.0f} s", "none"), ExitCode.TIMEOUT)
    if status != 0:
        raise Failed(code, words, status, "", "".join(lines), ExitCode.APPLY_FAILED)


def _end(process: subprocess.Popen[str]) -> None:
    """With all that it started: a builder's own children hold its storage."""
    try:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(10)
    except ProcessLookupError:
        return
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def shown(words: Sequence[str]) -> str:
    """A command for an error text: its first words, without options and folders. Pure."""
    return " ".join([word for word in words if not word.startswith(("-", "/"))][:4])


class Failed(KitError):
    """A tool that ended with another status than 0; keeps all it said."""

    def __init__(self, code: str, words: list[str], status: int, out: str, err: str, exit_code: int) -> None:
        self.out, self.err = out, err
        said = " ".join((err.strip() or out.strip()).split())[-_TAIL:]
        super().__init__(failure(code, shown(words), "exit 0", f"exit {status}: {said}"), exit_code)


def need(tool: str) -> None:
    """Raises KitError(USAGE) with the package to install when a tool is not there."""
    if "/" not in tool and shutil.which(tool) is None:
        step = f"apt-get install {PACKAGES.get(tool, tool)}"
        raise KitError(failure("image.tool", f"{tool} on this machine", "installed", "not found", step), ExitCode.USAGE)
