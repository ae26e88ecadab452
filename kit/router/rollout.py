"""A rollout as a journal: what was done, and what comes next, as a pure function of it. Whoever reads the journal can go on.

Forward, a node goes leave, stop, deploy, start, gate, join (which watches). The first failure ends the way forward for all: every
node that was touched goes back the same way with what it had before, newest first, and one that cannot is quarantined. Each
step may be done twice, so a run that was killed in the middle of one does it again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Literal

from kit.gates.declare import Frozen
from kit.gates.identity import Pass


class Step(StrEnum):
    """What is done with one node."""

    LEAVE = "leave"
    STOP = "stop"
    DEPLOY = "deploy"
    START = "start"
    GATE = "gate"
    JOIN = "join"
    QUARANTINE = "quarantine"


WAY = (Step.LEAVE, Step.STOP, Step.DEPLOY, Step.START, Step.GATE, Step.JOIN)
Direction = Literal["forward", "back"]


class Rollout(Frozen):
    """First line of the journal."""

    id: str
    release: str
    before: Mapping[str, str]
    """Node -> the release that it had."""
    waves: tuple[tuple[str, ...], ...]


class Event(Frozen):
    """One step that ended."""

    at: str
    node: str
    direction: Direction
    step: Step
    ok: bool
    reason: str = ""
    seconds: float = 0.0
    given: Pass | None = None
    """Of a gate."""
    operator: bool = False
    """An operator's quarantine was found on the node: it is left alone from here on."""


class Action(Frozen):
    """What comes next for one node."""

    node: str
    direction: Direction
    step: Step
    release: str
    given: Pass | None = None
    """For a join: the pass of the gate before it."""


class End(StrEnum):
    """How it ended."""

    DONE = "done"
    ROLLED_BACK = "rolled_back"
    QUARANTINED = "quarantined"
    """Rolled back, but a node could not be brought back and is out."""


def coming(rollout: Rollout, events: Sequence[Event]) -> tuple[Action, ...] | End:
    """The actions that may run now, beside each other; or how it ended."""
    mine = {node: [event for event in events if event.node == node] for wave in rollout.waves for node in wave}
    if any(not event.ok and event.direction == "forward" for event in events):
        return _back(rollout, events, mine)
    for wave in rollout.waves:
        open_ = [(node, _next(mine[node], "forward", WAY)) for node in wave]
        left = tuple(
            Action(node=n, direction="forward", step=s, release=rollout.release, given=_pass(mine[n], "forward"))
            for n, s in open_
            if s
        )
        if left:
            return left
    return End.DONE


def _back(rollout: Rollout, events: Sequence[Event], mine: Mapping[str, list[Event]]) -> tuple[Action, ...] | End:
    touched = list(dict.fromkeys(event.node for event in reversed(events) if event.direction == "forward"))
    for node in touched:
        if any(event.operator for event in mine[node]):
            continue
        back = [event for event in mine[node] if event.direction == "back"]
        if any(event.step is Step.QUARANTINE and event.ok for event in back):
            continue
        release = rollout.before[node]
        if any(not event.ok for event in back):
            return (Action(node=node, direction="back", step=Step.QUARANTINE, release=release),)
        step = _next(mine[node], "back", _way_back(mine[node]))
        if step is not None:
            return (Action(node=node, direction="back", step=step, release=release, given=_pass(mine[node], "back")),)
    out = any(event.operator or (event.step is Step.QUARANTINE and event.ok) for event in events)
    return End.QUARANTINED if out else End.ROLLED_BACK


def _way_back(events: Sequence[Event]) -> tuple[Step, ...]:
    """An engine that was never stopped is what it was: it only joins again, with the pass it had."""
    stopped = any(event.direction == "forward" and event.step is Step.STOP for event in events)
    return WAY if stopped else (Step.JOIN,)


def _next(events: Sequence[Event], direction: Direction, way: Sequence[Step]) -> Step | None:
    done = {event.step for event in events if event.direction == direction and event.ok}
    return next((step for step in way if step not in done), None)


def _pass(events: Sequence[Event], direction: Direction) -> Pass | None:
    given = [event.given for event in events if event.direction == direction and event.step is Step.GATE and event.ok]
    return given[-1] if given else None


def summary(rollout: Rollout, events: Sequence[Event]) -> dict[str, str]:
    """Node -> where it stands, in words."""
    out: dict[str, str] = {}
    for wave in rollout.waves:
        for node in wave:
            mine = [event for event in events if event.node == node]
            last = mine[-1] if mine else None
            if last is None:
                out[node] = f"not touched, {rollout.before[node]}"
            elif last.operator:
                out[node] = "left to the operator"
            elif last.step is Step.QUARANTINE and last.ok:
                out[node] = f"quarantined: {last.reason}"
            elif last.step is Step.JOIN and last.ok:
                out[node] = rollout.release if last.direction == "forward" else f"back on {rollout.before[node]}"
            else:
                out[node] = f"{last.direction} {last.step} {'done' if last.ok else f'failed: {last.reason}'}"
    return out
