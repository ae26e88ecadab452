"""What a record says about where and with what it was made."""

from __future__ import annotations

import contextlib
import getpass
import importlib.metadata
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from kit import paths
from kit.record.model import Control

_PACKAGES = ("ansible-core", "ansible-runner", "jinja2", "pydantic")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def describe() -> dict[str, Any]:
    """The fields of :class:`~kit.record.model.RunDocument` about this process, machine and checkout."""
    return {
        "kit_version": _version("b300kit"),
        "git_commit": git_commit(paths.ROOT),
        "control": Control(
            hostname=platform.node(),
            system=_system(),
            kernel=platform.release(),
            cpus=len(os.sched_getaffinity(0)),
        ),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "pid": os.getpid(),
        "pid_started": process_started(os.getpid()) or 0,
        "boot_id": boot_id(),
    }


def operator() -> str:
    """Who runs this and where, ``name@machine``, for another operator to read; the uid where there is no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # which of them is Python's version
        name = f"uid-{os.getuid()}"
    return f"{name}@{platform.node()}"


def boot_id() -> str:
    """Which boot of this machine it is; empty when it cannot be told."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def process_started(pid: int) -> int | None:
    """Clock ticks after boot at which a process started; None when there is no such process (or it is a zombie)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The command name, in brackets, may itself hold spaces and brackets.
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


@cache
def git_commit(root: Path) -> str | None:
    """The commit of a checkout, ``+changes`` when tracked files differ; None when it is none or git is missing."""
    if not (root / ".git").exists():
        return None
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        commit = _git(root, "rev-parse", "HEAD")
        return f"{commit}+changes" if _git(root, "status", "--porcelain", "--untracked-files=no") else commit
    return None


def _git(root: Path, *words: str) -> str:
    done = subprocess.run(
        ("git", "--no-optional-locks", "-C", str(root), *words), capture_output=True, text=True, timeout=5, check=True
    )
    return done.stdout.strip()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", platform.system())
    except OSError:
        return platform.system()
