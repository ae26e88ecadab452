"""Reading one thing at a time: each failure becomes one ``{"unknown": reason}`` and hurts nothing else."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any

Json = Any
Reader = Callable[[], Json]

MAX_FILE = 4 * 1024 * 1024
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ENVIRONMENT = {"PATH": PATH, "LC_ALL": "C", "SYSTEMD_PAGER": "cat", "SYSTEMD_COLORS": "0", "HOME": "/nonexistent"}


class Unreadable(Exception):
    """A fact that could not be read; the text is the reason."""


def unknown(reason: str) -> dict[str, str]:
    """The JSON of an unknown fact."""
    return {"unknown": reason}


def is_unknown(value: Json) -> bool:
    """Whether a fact is unknown."""
    return isinstance(value, dict) and set(value) == {"unknown"}


def fact(reader: Reader) -> Json:
    """What ``reader`` returns, or the reason why it could not."""
    try:
        return reader()
    except Unreadable as error:
        return unknown(str(error))
    except FileNotFoundError as error:
        return unknown(f"no such file: {error.filename}")
    except PermissionError as error:
        return unknown(f"permission denied: {error.filename}")
    except OSError as error:
        return unknown(f"{error.filename or 'read failed'}: {error.strerror or error}")
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        return unknown(f"not understood: {type(error).__name__}: {str(error)[:200]}")


def text(path: str) -> str:
    """A small file, stripped. Raises OSError as ``open`` does.

    In small pieces: files below /proc/sys refuse a read that asks for more than the kernel would allocate.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        pieces = []
        left = MAX_FILE
        while left > 0:
            piece = os.read(descriptor, min(left, 65536))
            if not piece:
                break
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(descriptor)
    return b"".join(pieces).decode("utf-8", "replace").strip()


def number(path: str) -> int:
    """A file that holds one decimal number."""
    value = text(path)
    try:
        return int(value)
    except ValueError:
        raise Unreadable(f"{path} holds {value[:40]!r}, not a number") from None


def numbers(listing: str) -> list[int]:
    """The kernel's list format: ``0-3,8`` is 0, 1, 2, 3, 8; empty text is no CPU."""
    found: list[int] = []
    for part in listing.replace("\n", "").split(","):
        part = part.strip()
        if not part:
            continue
        if not re.match(r"^[0-9]+(-[0-9]+)?$", part):
            raise Unreadable(f"not a list of CPUs: {listing[:60]!r}")
        first, _, last = part.partition("-")
        found.extend(range(int(first), int(last or first) + 1))
    return sorted(set(found))


def mask(words: str) -> list[int]:
    """The kernel's mask format: hexadecimal words, the highest first, separated by commas."""
    digits = words.strip().replace(",", "")
    value = int(digits, 16)
    return [bit for bit in range(value.bit_length()) if value >> bit & 1]


def find_program(name: str) -> str | None:
    """Full path of a program, or None."""
    for directory in PATH.split(":"):
        path = os.path.join(directory, name)
        if os.access(path, os.X_OK) and os.path.isfile(path):
            return path
    return None


def run(
    command: Sequence[str], timeout_s: float = 5.0, extra: dict[str, str] | None = None, user: int | None = None
) -> tuple[int, str, str]:
    """Status, stdout and stderr of a program. ``user``: uid to run it as, when we are root.

    Raises Unreadable when it is not installed or did not end in time; then its whole group is killed and not waited for,
    since a process that hangs in the kernel cannot be.
    """
    path = find_program(command[0])
    if path is None:
        raise Unreadable(f"{command[0]} is not installed")
    process = subprocess.Popen(
        [path, *list(command[1:])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(ENVIRONMENT, **(extra or {})),
        start_new_session=True,
        user=user if os.geteuid() == 0 else None,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        kill(process)
        raise Unreadable(f"{' '.join(command[:3])} did not answer in {timeout_s:g} s") from None
    return process.returncode, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def output(command: Sequence[str], timeout_s: float = 5.0, extra: dict[str, str] | None = None, user: int | None = None) -> str:
    """Standard output of a program that ended well. Raises Unreadable otherwise."""
    status, out, err = run(command, timeout_s, extra, user)
    if status != 0:
        words = " ".join((err.strip() or out.strip() or "no message").split())[:200]
        raise Unreadable(f"{' '.join(command[:3])} ended with status {status}: {words}")
    return out


def kill(process: subprocess.Popen[bytes], patience_s: float = 0.2) -> None:
    """SIGKILL to the process and its group; waits a moment only."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        process.kill()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(patience_s)
