"""Progress for people: what the kit's modules log, on standard error, with the time since the start."""

from __future__ import annotations

import logging
import os
import sys
import time

DEBUG = "B300KIT_DEBUG"


class _Lines(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self._start = time.monotonic()

    def format(self, record: logging.LogRecord) -> str:
        prefix = f"[{time.monotonic() - self._start:6.1f} s] "
        level = "" if record.levelno == logging.INFO else f"{record.levelname.lower()}: "
        return prefix + level + super().format(record)


def debugging() -> bool:
    """Whether ``B300KIT_DEBUG`` asks for tracebacks and debug lines."""
    return os.environ.get(DEBUG, "") not in ("", "0")


def configure() -> None:
    """Send the ``kit`` loggers to standard error. Safe to call twice."""
    logger = logging.getLogger("kit")
    if not logger.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(_Lines())
        logger.addHandler(handler)
    logger.setLevel(logging.DEBUG if debugging() else logging.INFO)
    logger.propagate = False
