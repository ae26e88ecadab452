"""Measured figures, kept on the control machine. They hold for one boot of one host, and are named so."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.facts.burn_in_model import MeasuredBurnIn
from kit.facts.model import MeasuredCores
from kit.files import replace
from kit.paths import cache_dir

_BURN_IN = "burn-in"
Shape = TypeVar("Shape", bound=BaseModel)


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    measured: MeasuredCores
    notes: tuple[str, ...]


def place(name: str, boot_id: str, kind: str = "") -> Path:
    """Where the figures of one boot lie. Host name and boot id are plain words; anything else would not be a file name."""
    if not (name + boot_id).replace("-", "").isalnum():
        raise ValueError(f"not a host name and boot id: {name!r} {boot_id!r}")
    return cache_dir() / "measured" / f"{name}-{boot_id}{'.' * bool(kind)}{kind}.json"


def _keep(name: str, boot_id: str, text: str, kind: str = "") -> Path:
    """Keep figures, in one piece. Raises KitError(INTERNAL, ``measured.write``)."""
    path = place(name, boot_id, kind)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace(path, text.encode())
    except OSError as error:
        raise _failed("measured.write", path, "a writable folder with free space", error) from error
    return path


def _read(name: str, boot_id: str, shape: type[Shape], kind: str = "") -> Shape | None:
    """The figures of one boot; None when there are none, or the file is damaged: then they are simply not known.

    Raises KitError(INTERNAL, ``measured.unreadable``): a file that may not be read is not one that is not there.
    """
    path = place(name, boot_id, kind)
    try:
        return shape.model_validate_json(path.read_text())
    except (FileNotFoundError, ValidationError):
        return None
    except OSError as error:
        raise _failed("measured.unreadable", path, "a readable file", error) from error


def _failed(code: str, path: Path, expected: str, error: OSError) -> KitError:
    step = "correct that, or set B300KIT_CACHE to another folder"
    return KitError(failure(code, str(path), expected, error.strerror or str(error), step), ExitCode.INTERNAL)


def store_burn_in(name: str, measured: MeasuredBurnIn) -> Path:
    """Keep a burn-in."""
    return _keep(name, measured.boot_id, measured.model_dump_json(indent=1), _BURN_IN)


def load_burn_in(name: str, boot_id: str) -> MeasuredBurnIn | None:
    """The burn-in of this boot, or None."""
    found = _read(name, boot_id, MeasuredBurnIn, _BURN_IN)
    return found if found is not None and found.boot_id == boot_id else None


def store(name: str, measured: MeasuredCores, notes: tuple[str, ...]) -> Path:
    """Keep core speeds."""
    return _keep(name, measured.boot_id, _Entry(measured=measured, notes=notes).model_dump_json(indent=1))


def load(name: str, boot_id: str) -> tuple[MeasuredCores, tuple[str, ...]] | None:
    """(core speeds, notes) of this boot, or None."""
    entry = _read(name, boot_id, _Entry)
    return (entry.measured, entry.notes) if entry is not None and entry.measured.boot_id == boot_id else None
