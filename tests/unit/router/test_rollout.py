"""What comes next in a rollout, for every place where it can fail or be cut."""

from __future__ import annotations

from typing import Any

import pytest

from kit.router.rollout import WAY, Action, Direction, End, Event, Rollout, Step, coming, summary

ROLLOUT = Rollout(id="r", release="new", before={"a": "old-a", "b": "old", "c": "old"}, waves=(("a",), ("b", "c")))


def event(node: str, step: Step, ok: bool = True, direction: Direction = "forward", **more: Any) -> Event:
    return Event(at="t", node=node, direction=direction, step=step, ok=ok, reason="" if ok else "planted", **more)


def play(fail: set[tuple[str, str, Step]], limit: int = 200) -> tuple[End, list[Event]]:
    """Carry out what comes, failing the given (node, direction, step); the journal is read anew before each action."""
    events: list[Event] = []
    for _ in range(limit):
        actions = coming(ROLLOUT, [Event.model_validate_json(e.model_dump_json()) for e in events])
        if isinstance(actions, End):
            return actions, events
        for action in actions:
            events.append(
                event(action.node, action.step, (action.node, action.direction, action.step) not in fail, action.direction)
            )
    raise AssertionError("it does not end")


def steps(events: list[Event], node: str, direction: Direction) -> list[Step]:
    return [e.step for e in events if (e.node, e.direction) == (node, direction)]


def test_one_canary_then_the_rest_beside_each_other() -> None:
    first = coming(ROLLOUT, [])
    assert isinstance(first, tuple)
    assert [(a.node, a.step) for a in first] == [("a", Step.LEAVE)]
    after = coming(ROLLOUT, [event("a", step) for step in WAY])
    assert isinstance(after, tuple)
    assert [(a.node, a.step) for a in after] == [("b", Step.LEAVE), ("c", Step.LEAVE)]
    end, events = play(set())
    assert end is End.DONE
    assert all(tuple(steps(events, node, "forward")) == WAY for node in "abc")


@pytest.mark.parametrize("step", [Step.STOP, Step.DEPLOY, Step.START, Step.GATE, Step.JOIN])
def test_a_failure_anywhere_on_the_canary_brings_it_back_and_touches_nobody_else(step: Step) -> None:
    end, events = play({("a", "forward", step)})
    assert end is End.ROLLED_BACK
    assert steps(events, "a", "forward")[-1] is step
    assert tuple(steps(events, "a", "back")) == WAY
    assert {e.node for e in events} == {"a"}
    assert summary(ROLLOUT, events) == {"a": "back on old-a", "b": "not touched, old", "c": "not touched, old"}


def test_a_drain_that_fails_only_joins_again() -> None:
    end, events = play({("a", "forward", Step.LEAVE)})
    assert end is End.ROLLED_BACK
    assert steps(events, "a", "back") == [Step.JOIN]


def test_a_failure_in_a_later_wave_brings_every_touched_node_back_newest_first() -> None:
    end, events = play({("c", "forward", Step.GATE)})
    assert end is End.ROLLED_BACK
    assert all(tuple(steps(events, node, "back")) == WAY for node in "abc")
    back = list(dict.fromkeys(e.node for e in events if e.direction == "back"))
    assert back == ["c", "b", "a"]
    releases = {a.node: a.release for a in _actions(events) if a.direction == "back" and a.step is Step.DEPLOY}
    assert releases == {"a": "old-a", "b": "old", "c": "old"}


def _actions(events: list[Event]) -> list[Action]:
    out: list[Action] = []
    for at in range(len(events)):
        found = coming(ROLLOUT, events[:at])
        out += found if isinstance(found, tuple) else ()
    return out


def test_a_node_that_cannot_be_brought_back_is_quarantined_and_the_others_go_on_back() -> None:
    end, events = play({("c", "forward", Step.GATE), ("c", "back", Step.GATE)})
    assert end is End.QUARANTINED
    assert steps(events, "c", "back")[-1] is Step.QUARANTINE
    assert tuple(steps(events, "a", "back")) == WAY


def test_an_operators_quarantine_leaves_the_node_alone() -> None:
    events = [event("a", step) for step in WAY] + [event("b", Step.LEAVE, ok=False, operator=True)]
    found = coming(ROLLOUT, events)
    assert isinstance(found, tuple)
    assert {a.node for a in found} == {"a"}
    assert summary(ROLLOUT, events)["b"] == "left to the operator"


def test_a_step_that_was_cut_is_done_again() -> None:
    done = [event("a", step) for step in (Step.LEAVE, Step.STOP)]
    found = coming(ROLLOUT, done)
    assert isinstance(found, tuple)
    assert [(a.node, a.step) for a in found] == [("a", Step.DEPLOY)]
    assert found == coming(ROLLOUT, list(done))
