"""Priority Core Turbo: one plan must be right for the host it leaves behind."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit.facts.model import parse
from kit.plan.make import make_plan
from kit.plan.model import Action, Step
from tests.hosts import build
from tests.unit.plan import world


def document(case: str) -> dict[str, Any]:
    """A golden host's processors on an otherwise fresh host."""
    found = world.fresh_document(world.declared())
    differs = json.loads((build.HERE / case / "facts.json").read_text())
    found["cpu"] = build.document(differs, None, {})["cpu"]
    return found


def settings(steps: dict[str, Step]) -> dict[str, Any]:
    file = steps["cpu.config_file"].file
    assert file is not None
    found: dict[str, Any] = json.loads(file.content)
    return found


def test_cores_known_by_hints_become_the_priority_cores() -> None:
    spec = world.declared()
    steps = world.planned(spec, world.fresh_document(spec))
    turbo = steps["cpu.priority_core_turbo"]
    assert turbo.action is Action.CHANGE
    assert turbo.disruptive
    chosen = world.cpus(settings(steps)["priority"]["cpus"])
    assert len(chosen) == 32
    assert {3, 9, 65} <= set(chosen)


def test_on_a_flat_host_cores_are_chosen_evenly_and_judged_as_they_will_be() -> None:
    spec, flat = world.declared(), document("flat-pct-available")
    steps = world.planned(spec, flat)
    assert steps["cpu.fast_cores"].action is Action.CHANGE
    chosen = world.cpus(settings(steps)["priority"]["cpus"])
    heads = [c for c in chosen if c < 128]
    assert len(heads) == 16
    assert 0 not in heads
    for first in range(0, 128, 32):  # every power domain of 32 cores holds its share
        assert sum(first <= c < first + 32 for c in heads) == 4
    # After the apply the same plan comes out: nothing is written twice.
    flat["cpu"]["priority"] |= {"enabled": True, "priority_cpus": chosen}
    after = world.planned(spec, flat)
    assert settings(after) == settings(steps)
    assert after["cpu.priority_core_turbo"].action is Action.KEEP
    assert after["cpu.fast_cores"].action is Action.KEEP


def test_a_flat_host_without_the_feature_refuses() -> None:
    plan = make_plan(world.declared(), world.LOCK, parse(document("flat-no-pct")))
    assert "cpu.fast_cores" in {s.id for s in plan.of(Action.REFUSE)}


def test_an_ambiguous_spread_refuses() -> None:
    plan = make_plan(world.declared(), world.LOCK, parse(document("ambiguous")))
    assert "cpu.fast_cores" in {s.id for s in plan.of(Action.REFUSE)}


def test_leave_never_touches_it() -> None:
    spec = world.declared(cpu__fast_cores__priority_core_turbo="leave")
    steps = world.planned(spec, world.fresh_document(spec))
    assert steps["cpu.priority_core_turbo"].action is Action.KEEP
    assert settings(steps)["priority"] is None


def test_required_but_not_supported_refuses() -> None:
    spec = world.declared(cpu__fast_cores__priority_core_turbo="required")
    found = world.fresh_document(spec)
    found["cpu"]["priority"]["supported"] = False
    assert world.planned(spec, found)["cpu.priority_core_turbo"].action is Action.REFUSE


@pytest.mark.parametrize("silent", [("supported", "enabled", "priority_cpus"), ("enabled",), ("priority_cpus",)])
def test_a_tool_that_does_not_answer_is_no_answer(silent: tuple[str, ...]) -> None:
    """A busy host once had its priority cores taken out of the unit's file because the tool took too long."""
    spec = world.declared()
    found = world.provisioned_document(spec)
    assert world.planned(spec, found)["cpu.priority_core_turbo"].action is Action.KEEP
    found["cpu"]["priority"] |= {name: {"unknown": "did not answer in 10 s"} for name in silent}
    step = world.planned(spec, found)["cpu.priority_core_turbo"]
    assert step.action is Action.REFUSE
    assert "did not answer in 10 s" in step.found


def test_a_host_without_the_tool_is_judged_by_other_evidence() -> None:
    spec = world.declared()
    found = world.fresh_document(spec)
    found["cpu"]["priority"] = {name: {"unknown": "not installed"} for name in found["cpu"]["priority"]} | {"tool": False}
    steps = world.planned(spec, found)
    assert steps["cpu.priority_core_turbo"].action is Action.KEEP
    assert settings(steps)["priority"] is None


def test_more_cores_than_the_highest_bucket_holds_are_not_chosen() -> None:
    spec, flat = world.declared(), document("flat-pct-available")
    flat["cpu"]["priority"]["bucket_cores"] = 4
    assert world.planned(spec, flat)["cpu.priority_core_turbo"].action is Action.REFUSE


def test_interrupts_go_to_the_systems_slow_cores_and_irqbalance_is_told() -> None:
    spec = world.declared()
    steps = world.planned(spec, world.fresh_document(spec))
    cpus = set(world.cpus(settings(steps)["interrupts"]["cpus"]))
    assert len(cpus) == 2 * spec.cpu.os_cores
    assert not cpus & set(world.cpus(settings(steps)["priority"]["cpus"]))
    file = steps["cpu.irqbalance_file"].file
    assert file is not None
    banned = file.content.split("IRQBALANCE_BANNED_CPULIST=")[1].splitlines()[0]
    assert set(world.cpus(banned)) == set(range(256)) - cpus


def test_interrupts_that_cannot_be_moved_are_told_and_are_no_drift() -> None:
    """Linux spreads the queues of NVMe drives itself, over serving cores too."""
    spec = world.declared()
    step = world.planned(spec, world.provisioned_document(spec))["cpu.interrupts"]
    assert step.action is Action.KEEP
    assert "cannot be moved by software: 224 interrupts" in step.reason
