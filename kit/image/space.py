"""Free space, looked at before the work that needs it. Edge: asks the file system."""

from __future__ import annotations

import shutil
from pathlib import Path

from kit.errors import ExitCode, KitError, failure

BUILD_BYTES = 16_000_000_000
"""Package files, their layer, the installed packages in two stages, and as much again for what is being written."""


def need_space(folder: Path, wanted_bytes: int) -> None:
    """Raises KitError(APPLY_FAILED, ``image.no_space``) before work that could not end."""
    folder.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(folder).free
    if free < wanted_bytes:
        step = "free space there, or set B300KIT_CACHE to another disk"
        wanted, found = f"{wanted_bytes / 1e9:.1f} GB free", f"{free / 1e9:.1f} GB"
        raise KitError(failure("image.no_space", str(folder), wanted, found, step), ExitCode.APPLY_FAILED)
