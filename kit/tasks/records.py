"""Commands on what earlier runs left."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.command import command

if TYPE_CHECKING:
    from kit.outcome import Outcome

_RUN = "A run's id, a part of it that only one run has, or latest."


@command(help={"limit": "How many, newest first; 0 for all."})
def record_list(limit: int = 20) -> Outcome:
    """Runs that left a record."""
    from kit.cli import records

    return records.listing(limit)


@command(help={"run": _RUN})
def record_show(run: str = "latest") -> Outcome:
    """What a run did, and how long each stage took."""
    from kit.cli import records

    return records.show(run)


@command(help={"run": _RUN})
def record_report(run: str = "latest") -> Outcome:
    """Write a run's HTML page."""
    from kit.cli import records

    return records.report(run)


@command(help={"run": _RUN})
def record_verify(run: str = "latest") -> Outcome:
    """Is a record as it was written? Exit 5 if not."""
    from kit.cli import records

    return records.verify(run)
