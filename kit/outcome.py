"""What a command found out, as a value: one part a host, with the exit code each means. Printing it is the CLI's work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kit.errors import ExitCode, Failure


@dataclass(frozen=True)
class HostOutcome:
    """One host's end. ``result`` is JSON-able: ``steps``, ``gates``, ``record`` and what else the task tells."""

    exit_code: int
    """An :class:`ExitCode`, or 128+N when the work on this host was ended by signal N."""
    result: Mapping[str, Any] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What a task returns. A task about no host leaves ``hosts`` empty and sets ``exit_code``."""

    task: str
    hosts: Mapping[str, HostOutcome] = field(default_factory=dict)
    result: Mapping[str, Any] = field(default_factory=dict)
    """What is about the whole run, not one host; JSON-able."""
    failures: tuple[Failure, ...] = ()
    """Failures that belong to no single host."""
    skipped: tuple[str, ...] = ()
    """What was not done, and why: skipped is never passed."""
    exit_code: int = ExitCode.OK
    """Of what belongs to no host; the process exit status is combined from this and the hosts' (kit.cli.exit)."""
    text: str = ""
    """For a terminal, on standard output in text format. kit.report.text writes it."""
