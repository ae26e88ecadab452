"""The plan as a whole: fresh, provisioned, everything unknown, and stable ids."""

from __future__ import annotations

import pytest

from kit.facts.model import parse
from kit.plan.make import make_plan
from kit.plan.model import Action
from tests.hosts import build
from tests.unit.plan import world


def test_fresh_host_changes_and_refuses_nothing() -> None:
    plan = make_plan(world.declared(), world.LOCK, world.fresh(world.declared()))
    assert not plan.refused
    assert not plan.of(Action.REBOOT)
    assert len(plan.of(Action.CHANGE)) > 30
    assert all(step.role for step in plan.of(Action.CHANGE))


def test_provisioned_host_keeps_everything() -> None:
    plan = make_plan(world.declared(), world.LOCK, world.provisioned(world.declared()))
    assert [(s.id, s.reason) for s in plan.steps if s.action is not Action.KEEP] == []


@pytest.mark.parametrize("make", [world.fresh_document, world.provisioned_document])
def test_ids_are_the_same_for_every_host_and_unique(make) -> None:
    spec = world.declared()
    ids = [s.id for s in make_plan(spec, world.LOCK, parse(make(spec))).steps]
    blind = make(spec)
    blind["gpu"] = {"unknown": "no NVIDIA driver"}
    blinded = [s.id for s in make_plan(spec, world.LOCK, parse(blind)).steps]
    assert ids == blinded
    assert len(ids) == len(set(ids))


def test_every_step_has_a_reason_and_every_refusal_a_next_step() -> None:
    spec = world.declared()
    for document in (world.fresh_document(spec), world.provisioned_document(spec), _everything_unknown()):
        for step in make_plan(spec, world.LOCK, parse(document)).steps:
            assert step.reason
            assert step.action is not Action.REFUSE or step.next, step.id


def _everything_unknown() -> dict:
    from kit.facts.model import Facts

    return build.blinded(world.provisioned_document(world.declared()), Facts, {"unknown": "the tool hangs"})


def test_nothing_unknown_passes_for_verified() -> None:
    """Only what the spec does not judge may be kept; every judged fact that is unknown refuses or changes."""
    spec = world.declared()
    kept = {id for id, step in world.planned(spec, _everything_unknown()).items() if step.action is Action.KEEP}
    declared_away = {
        "burn_in.nccl_all_reduce", "burn_in.nvlink", "burn_in.hbm", "driver.packages", "firewall.ssh", "gpu.pcie",
        # An unknown capability of the processor with `if_supported`; the fast cores themselves are refused.
        "cpu.priority_core_turbo",
        # Warnings: no reboot is asked for.
        "reboot.next_kernel", "reboot.host",
    }  # fmt: skip
    assert kept <= declared_away


def test_the_digest_depends_on_decisions_not_on_the_boot() -> None:
    spec = world.declared()
    one, other = world.fresh_document(spec), world.fresh_document(spec)
    other["host"]["boot_id"] = "another"
    assert make_plan(spec, world.LOCK, parse(one)).digest() == make_plan(spec, world.LOCK, parse(other)).digest()
    other["sysctls"]["vm.swappiness"] = "10"
    assert make_plan(spec, world.LOCK, parse(one)).digest() != make_plan(spec, world.LOCK, parse(other)).digest()


def test_the_plan_is_pure() -> None:
    spec, facts = world.declared(), world.fresh(world.declared())
    assert make_plan(spec, world.LOCK, facts) == make_plan(spec, world.LOCK, facts)
