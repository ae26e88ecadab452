"""Failures as values, and the exit codes that are this product's contract.

Libraries raise :class:`KitError`; only the command line turns one into an exit status.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from pydantic import BaseModel, ConfigDict


class ExitCode(IntEnum):
    """Process exit status. 128+N is used for a run ended by signal N."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    CHANGE_PENDING = 3
    REFUSED = 4
    GATE_FAILED = 5
    TIMEOUT = 6
    UNREACHABLE = 7
    MIXED = 8
    ROLLED_BACK = 9
    INCONCLUSIVE = 10
    APPLY_FAILED = 11
    LOCKED = 12


class Failure(BaseModel):
    """One thing that is wrong: place, what was expected, what was found, and what to do next."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str
    """Stable dotted name, e.g. ``spec.unknown_key`` or ``ssh.host_key``."""
    where: str
    """File and key, host and step, or command."""
    expected: str = ""
    found: str = ""
    next: str = ""

    def text(self) -> str:
        """One sentence for a terminal."""
        parts = [f"{self.where}: {self.code}"]
        if self.expected:
            parts.append(f"expected {self.expected}")
        if self.found:
            parts.append(f"found {self.found}")
        line = "; ".join(parts)
        return f"{line}. Next: {self.next}" if self.next else line


class KitError(Exception):
    """Carries every failure found (never only the first) and the exit code they mean."""

    def __init__(self, failures: list[Failure] | Failure, exit_code: int) -> None:
        """``exit_code`` is an :class:`ExitCode`, or 128+N when signal N ended the work."""
        self.failures: list[Failure] = failures if isinstance(failures, list) else [failures]
        self.exit_code = exit_code
        super().__init__("\n".join(f.text() for f in self.failures))


def failure(code: str, where: str, expected: Any = "", found: Any = "", next: str = "") -> Failure:
    """Build a :class:`Failure`, turning values into text once, here."""
    return Failure(code=code, where=where, expected=str(expected), found=str(found), next=next)
