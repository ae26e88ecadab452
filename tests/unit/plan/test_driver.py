"""`install`: the locked versions, held; and the reboot that loads them, never into a kernel without the driver."""

from __future__ import annotations

from typing import Any

from kit.apply.variables import role_variables
from kit.facts.model import parse
from kit.plan.areas.driver import version
from kit.plan.make import make_plan
from kit.plan.model import Action, Plan
from kit.spec.model import HostSpec
from tests.unit.plan import world

NAME = "nvidia-driver-580-open"
LOCK = world.LOCK.model_copy(update={"driver": "580.105.08", "fabric_manager": "580.105.08", "packages": {NAME: "580.105.08-1"}})


def spec() -> HostSpec:
    return world.declared(gpus__driver={"minimum": "580.65.06", "manage": "install", "packages": [NAME], "fabric_manager": True})


def plan(**changes: Any) -> Plan:
    document = world.provisioned_document(world.declared())
    for path, value in changes.items():
        world.put(document, path.replace("__", "."), value)
    return make_plan(spec(), LOCK, parse(document))


def test_another_version_than_locked_is_installed_then_rebooted() -> None:
    found = plan()
    assert not found.refused, [s.reason for s in found.of(Action.REFUSE)]
    changes = {s.id: s for s in found.of(Action.CHANGE)}
    assert changes[f"driver.package.{NAME}"].arguments == {"packages": [{"name": NAME, "version": "580.105.08-1"}]}
    assert changes[f"driver.package.{NAME}"].disruptive
    assert {s.id for s in found.of(Action.REBOOT)} >= {"driver.lock", "reboot.host"}


def test_what_the_lock_does_not_say_is_mended_by_no_reboot() -> None:
    lock = LOCK.model_copy(update={"driver": None, "fabric_manager": None})
    for facts in (world.provisioned_document(world.declared()), world.fresh_document(spec()) | {"gpu": {"unknown": "no driver"}}):
        steps = {s.id: s.action for s in make_plan(spec(), lock, parse(facts)).steps}
        assert steps["driver.lock"] is steps["fabric_manager.lock"] is Action.REFUSE


def test_the_reboot_runs_only_when_asked_for() -> None:
    assert "reboot" not in role_variables(plan())["b300kit_roles"]
    assert role_variables(plan(), reboot=True)["b300kit_roles"][-1] == "reboot"


def test_a_next_kernel_without_the_driver_module_refuses_the_reboot() -> None:
    refused = {s.id for s in plan(host__next_kernel_dkms="missing").of(Action.REFUSE)}
    assert refused == {"reboot.next_kernel"}
    assert plan(host__next_kernel_dkms={"unknown": "dkms hangs"}).refused


def test_without_a_reboot_it_is_only_warned_about() -> None:
    document = world.provisioned_document(world.declared())
    document["host"]["next_kernel_dkms"] = "missing"
    step = world.planned(world.declared(), document)["reboot.next_kernel"]
    assert step.action is Action.KEEP
    assert "WARNING" in step.reason


def test_installed_but_still_the_old_module_is_a_reboot_not_a_refusal() -> None:
    done = {"version": "580.105.08-1", "held": True, "candidate": "580.105.08-1"}
    found = plan(**{f"packages__{NAME}": done})
    assert not found.refused
    assert "reboot.host" in {s.id for s in found.of(Action.REBOOT)}
    assert not found.of(Action.CHANGE)


def test_a_bare_host_gets_its_driver_first_and_its_gpus_are_judged_after_the_reboot() -> None:
    bare = {"gpu": {"unknown": "no NVIDIA driver"}, f"packages__{NAME}": {"unknown": "not installed"}}
    found = plan(**bare)
    assert not found.refused, [s.reason for s in found.of(Action.REFUSE)]
    off = {s.id for s in found.of(Action.REBOOT)}
    assert {"gpu.count", "gpu.sms", "gpu.persistence", "gpu.sm_clock", "driver.lock", "reboot.host"} <= off
    assert "gpu" not in role_variables(found, reboot=True)["b300kit_roles"], "its settings cannot be made before the reboot"


def test_gpus_that_answer_are_judged_at_once() -> None:
    found = plan(gpu__gpus=[])
    assert "gpu.count" in {s.id for s in found.of(Action.REBOOT)}
    document = world.provisioned_document(world.declared())
    three = document["gpu"]["gpus"][:3]
    assert "gpu.count" in {s.id for s in plan(gpu__gpus=three).of(Action.REFUSE)}


def test_silent_gpus_under_a_driver_that_is_only_checked_are_refused() -> None:
    document = world.provisioned_document(world.declared())
    document["gpu"] = {"unknown": "no NVIDIA driver"}
    assert "gpu.count" in {s.id for s in make_plan(world.declared(), world.LOCK, parse(document)).of(Action.REFUSE)}


def test_the_right_version_not_held_is_a_change() -> None:
    loose = {"version": "580.105.08-1", "held": False, "candidate": "580.105.08-1"}
    assert f"driver.package.{NAME}" in {s.id for s in plan(**{f"packages__{NAME}": loose}).of(Action.CHANGE)}


def test_a_package_without_a_locked_version_refuses() -> None:
    document = world.provisioned_document(world.declared())
    lock = LOCK.model_copy(update={"packages": {}})
    refused = {s.id for s in make_plan(spec(), lock, parse(document)).of(Action.REFUSE)}
    assert f"driver.package.{NAME}" in refused


def test_versions_compare_by_number() -> None:
    assert version("580.105.08") > version("580.65.06") > version("580.9")
    assert version("580.65.06") >= version("580.65.6")
