"""A host that serves is not disturbed."""

from __future__ import annotations

from typing import Any

import pytest

from kit.facts.model import parse
from kit.plan import where
from kit.plan.make import make_plan
from kit.plan.model import Action
from tests.unit.plan import world

UNKNOWN = {"unknown": "cannot be read"}


def serving(**membership: Any) -> dict[str, Any]:
    document = world.fresh_document(world.declared())
    document["membership"] |= membership
    return document


@pytest.mark.parametrize("membership", [{"joined": True}, {"engine_active": True}])
def test_every_disruptive_step_is_refused_with_the_way_out(membership: dict[str, Any]) -> None:
    spec = world.declared()
    free = make_plan(spec, world.LOCK, world.fresh(spec))
    disruptive = {s.id for s in free.of(Action.CHANGE) if s.disruptive}
    assert {"docker.service", "gpu.unit", "cpu.priority_core_turbo", "memory.unit_file"} <= disruptive
    plan = make_plan(spec, world.LOCK, parse(serving(**membership)))
    refused = {s.id: s for s in plan.of(Action.REFUSE)}
    assert set(refused) >= disruptive
    assert all(refused[id].next == "invoke leave --host seed-b300" for id in disruptive)
    assert not any(s.disruptive for s in plan.of(Action.CHANGE))


def test_every_unit_file_is_disruptive_because_of_the_daemon_reload() -> None:
    plan = make_plan(world.declared(), world.LOCK, world.fresh(world.declared()))
    for step in plan.of(Action.CHANGE):
        if step.file is not None and step.file.path.startswith("/etc/systemd/"):
            assert step.disruptive, step.id


@pytest.mark.parametrize("what", ["joined", "engine_active"])
def test_not_knowing_counts_as_serving_where_an_engine_is_set_up(what: str) -> None:
    document = serving(**{what: UNKNOWN})
    assert not make_plan(world.declared(), world.LOCK, parse(document)).refused
    document["files"][where.ENGINE_UNIT_FILE] = world.file("[Service]\n")
    assert make_plan(world.declared(), world.LOCK, parse(document)).refused


def test_harmless_drift_on_a_joined_host_is_still_mended() -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["membership"]["joined"] = True
    document["packages"]["containerd"]["held"] = False
    plan = make_plan(spec, world.LOCK, parse(document))
    assert not plan.refused
    assert [s.id for s in plan.of(Action.CHANGE)] == ["packages.hold.containerd"]


def test_a_running_engine_does_not_count_its_own_pools_as_missing_memory() -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["memory"]["available_kib"] = 100 * 1024 * 1024
    assert world.planned(spec, document)["memory.hicache"].action is Action.REFUSE
    document["membership"] |= {"joined": True, "engine_active": True}
    assert world.planned(spec, document)["memory.hicache"].action is Action.KEEP
