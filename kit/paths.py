"""Where things lie on the control machine. The only module that reads the B300KIT_* folder variables."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The checkout: the folder that holds ``tasks.py``, ``fleet/`` and ``roles/``."""


def _folder(variable: str, default: Path) -> Path:
    value = os.environ.get(variable)
    return Path(value).absolute() if value else default


def cache_dir() -> Path:
    """Root file systems, compiled probes, the simulated fleet. ``$B300KIT_CACHE``, else ``.cache``. May not exist yet."""
    return _folder("B300KIT_CACHE", ROOT / ".cache")


def runs_dir() -> Path:
    """Records of runs. ``$B300KIT_RUNS``, else ``runs``. May not exist yet."""
    return _folder("B300KIT_RUNS", ROOT / "runs")


def fleet_dirs() -> list[Path]:
    """Fleet folders that ``--host`` looks in, in order.

    ``$B300KIT_FLEET`` (separated like ``$PATH``) replaces the default: ``fleet/``, then the simulated hosts' fleet
    in the cache when there is one.
    """
    named = [Path(part).absolute() for part in os.environ.get("B300KIT_FLEET", "").split(os.pathsep) if part]
    if named:
        return named
    simulated = cache_dir() / "fleet"
    try:
        there = simulated.is_dir()
    except PermissionError:
        there = True  # whoever reads it says why it cannot be read
    return [ROOT / "fleet", *([simulated] if there else [])]
