"""Measured core speeds, kept on the control machine. They hold for one boot of one host, and are named so."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from kit.facts.model import MeasuredCores
from kit.paths import cache_dir


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    measured: MeasuredCores
    notes: tuple[str, ...]


def place(name: str, boot_id: str) -> Path:
    """Where the speeds of one boot lie. A host's name and the boot id are plain words; anything else would not be a file name."""
    if not (name + boot_id).replace("-", "").isalnum():
        raise ValueError(f"not a host name and boot id: {name!r} {boot_id!r}")
    return cache_dir() / "measured" / f"{name}-{boot_id}.json"


def store(name: str, measured: MeasuredCores, notes: tuple[str, ...]) -> Path:
    """Keep speeds, in one piece."""
    path = place(name, measured.boot_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=f".{name}", delete=False) as stream:
        stream.write(_Entry(measured=measured, notes=notes).model_dump_json(indent=1))
        stream.flush()
        os.fsync(stream.fileno())
    Path(stream.name).replace(path)
    return path


def load(name: str, boot_id: str) -> tuple[MeasuredCores, tuple[str, ...]] | None:
    """(speeds, notes) of this boot; None when there are none, or the file is damaged: then they are simply not known."""
    try:
        entry = _Entry.model_validate_json(place(name, boot_id).read_text())
    except (FileNotFoundError, ValidationError):
        return None
    return (entry.measured, entry.notes) if entry.measured.boot_id == boot_id else None
