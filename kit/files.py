"""A file replaced in one piece: a reader never sees half of it, and a full disk leaves nothing behind."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

PARTIAL = ".partial-"
"""Prefix of a file that is being written. One that stays was left by a killed process."""


def replace(path: Path, content: bytes) -> None:
    """Put ``content`` at ``path`` or leave it as it was; on the disk when this returns. An older file's mode is kept.

    Raises OSError; the partial file is gone then.
    """
    partial = path.with_name(f"{PARTIAL}{path.name}-{secrets.token_hex(3)}")
    try:
        _write_new(partial, content)
        with contextlib.suppress(FileNotFoundError):
            partial.chmod(stat.S_IMODE(path.stat().st_mode))
        partial.rename(path)
        sync_directory(path.parent)
    except BaseException:
        # A signal between the two must not leave the partial file either.
        with contextlib.suppress(OSError):
            partial.unlink()
        raise


def sync_directory(path: Path) -> None:
    """Make a rename in the folder survive a power cut. Raises OSError."""
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_all(handle: int, content: bytes) -> None:
    """Write to a descriptor until nothing is left. Raises OSError."""
    view = memoryview(content)
    while view:
        view = view[os.write(handle, view) :]


def _write_new(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        write_all(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
