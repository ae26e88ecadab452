"""Stages on a time axis that all hosts of a run share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kit.record.model import HostRecord, RunRecord, Stage
from kit.report import words
from kit.report.clean import one_line


@dataclass(frozen=True)
class Bar:
    """A stage on the time axis; ``left`` and ``width`` in thousandths of it."""

    name: str
    start: str
    took: str
    outcome: str
    left: float
    width: float


def bars(stages: Sequence[Stage], end_s: float) -> tuple[Bar, ...]:
    """The stages as bars on an axis of ``end_s`` seconds."""
    return tuple(
        Bar(
            one_line(stage.name),
            words.seconds(stage.offset_s),
            words.seconds(stage.seconds),
            stage.outcome,
            1000 * stage.offset_s / end_s,
            # What never ended reaches to the end of what is known; nothing is thinner than can be seen.
            max(4.0, 1000 * (end_s - stage.offset_s if stage.seconds is None else stage.seconds) / end_s),
        )
        for stage in stages
    )


def end_s(run: RunRecord) -> float:
    """Length of the time axis: the run's own length, or the last thing that is known to have happened."""
    stages = [*run.stages, *(stage for host in run.hosts.values() for stage in host.stages)]
    last = max((stage.offset_s + (stage.seconds or 0.0) for stage in stages), default=0.0)
    known = run.document.seconds if run.document and run.document.seconds is not None else 0.0
    # Nobody knows how long a cut-off stage went on, but it must be seen.
    open_end = 1.15 if any(stage.seconds is None for stage in stages) else 1.0
    return max(last * open_end, known, 0.001)


def total(stages: Sequence[Stage]) -> str:
    """How long the stages took from the first to the last, as text."""
    if not stages:
        return "no stage"
    if any(stage.seconds is None for stage in stages):
        return "not ended"
    first = min(stage.offset_s for stage in stages)
    return words.seconds(max(stage.offset_s + (stage.seconds or 0.0) for stage in stages) - first)


def with_shared(host: HostRecord, run: RunRecord) -> tuple[Stage, ...]:
    """A host's stages with those that it shared with others, in order of time."""
    together = " (all hosts at once)" if len(run.hosts) > 1 else ""
    shared = [
        replace(stage, name=f"{stage.name}{together}")
        for stage in run.stages
        # A host with nothing to change has no part in the one Ansible run.
        if stage.name != "apply" or host.apply is not None
    ]
    return tuple(sorted([*host.stages, *shared], key=lambda stage: stage.offset_s))
