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

from kit import paths, procfs
from kit.record.model import Control

_PACKAGES = ("ansible-core", "ansible-runner", "jinja2", "pydantic")


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
        "pid_started": procfs.started(os.getpid()) or 0,
        "boot_id": procfs.boot_id(),
    }


def operator() -> str:
    """Who runs this and where, ``name@machine``, for another operator to read; the uid where there is no name."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # which of them is Python's version
        name = f"uid-{os.getuid()}"
    return f"{name}@{platform.node()}"


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
