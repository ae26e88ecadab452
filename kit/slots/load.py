"""Reads ``slots.yml`` of a series. The edge to the file system; decides nothing."""

from __future__ import annotations

from pathlib import Path

from kit.errors import ExitCode, Failure, KitError
from kit.patch.load import SLOTS_FILE, parse_model, read_text
from kit.slots.model import SlotsDeclared


def load_declared(series: Path) -> SlotsDeclared:
    """What a series folder declares about slots. Raises KitError(USAGE) with every failure."""
    failures: list[Failure] = []
    path = series / SLOTS_FILE
    text = read_text(path, failures)
    declared = parse_model(SlotsDeclared, text, path, {}, failures) if not failures else None
    if declared is None or failures:
        raise KitError(failures, ExitCode.USAGE)
    return declared
