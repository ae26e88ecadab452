"""A plan as role variables: only what changes, each thing once, in the order of the roles."""

from __future__ import annotations

import json

import yaml

from kit.apply.variables import ROLES, role_variables
from kit.facts.model import parse
from kit.paths import ROOT
from kit.plan.make import make_plan
from kit.plan.model import Action
from tests.unit.plan import world


def fresh_variables() -> dict:
    spec = world.declared()
    return role_variables(make_plan(spec, world.LOCK, world.fresh(spec)))


def test_a_provisioned_host_gives_no_role() -> None:
    spec = world.declared()
    found = role_variables(make_plan(spec, world.LOCK, world.provisioned(spec)))
    assert found["b300kit_roles"] == []
    assert set(found) == {"b300kit_plan", "b300kit_roles"}


def test_a_refused_plan_gives_no_role_either() -> None:
    spec = world.declared()
    document = world.fresh_document(spec)
    document["gpu"]["gpus"][0]["sms"] = 152
    assert role_variables(make_plan(spec, world.LOCK, parse(document)))["b300kit_roles"] == []


def test_roles_come_in_order_and_only_those_that_change() -> None:
    spec = world.declared()
    assert fresh_variables()["b300kit_roles"] == [r for r in ROLES if r not in ("driver", "reboot")]
    document = world.provisioned_document(spec)
    document["packages"]["containerd"]["held"] = False
    found = role_variables(make_plan(spec, world.LOCK, parse(document)))
    assert found["b300kit_roles"] == ["packages"]
    assert found["packages_hold"] == ["containerd"]
    assert "packages_files" not in found


def test_several_steps_that_ask_for_one_restart_give_one() -> None:
    found = fresh_variables()
    assert found["cpu_units_restart"] == ["b300kit-cpu.service", "irqbalance.service"]
    assert found["container_engine_units_restart"].count("docker.service") == 1


def test_unit_files_ask_for_a_daemon_reload() -> None:
    spec = world.declared()
    assert fresh_variables()["gpu_daemon_reload"] is True
    document = world.provisioned_document(spec)
    document["files"]["/etc/b300kit/gpu.json"] = world.file("{}")
    found = role_variables(make_plan(spec, world.LOCK, parse(document)))
    assert found["b300kit_roles"] == ["gpu"]
    assert "gpu_daemon_reload" not in found
    assert found["gpu_units_restart"] == ["b300kit-gpu.service"]


def test_it_is_json_and_names_the_boot_it_was_made_for() -> None:
    found = json.loads(json.dumps(fresh_variables()))
    assert found["b300kit_plan"]["host"] == "seed-b300"
    assert found["b300kit_plan"]["boot_id"] == world.fresh(world.declared()).host.boot_id
    assert found["memory_swap_off"] is True


def test_every_variable_is_declared_by_its_role_and_every_role_is_known_to_the_playbook() -> None:
    for name in fresh_variables():
        role = next((r for r in sorted(ROLES, key=len, reverse=True) if name.startswith(f"{r}_")), None)
        if role is None:
            assert name in ("b300kit_plan", "b300kit_roles")
            continue
        options = yaml.safe_load((ROOT / "roles" / role / "meta" / "argument_specs.yml").read_text())["argument_specs"]["main"][
            "options"
        ]
        assert name in options
    play = yaml.safe_load((ROOT / "playbooks" / "apply.yml").read_text())[0]
    known = next(task["vars"]["b300kit_known_roles"] for task in play["tasks"] if "vars" in task)
    assert known == list(ROLES)


def test_every_role_that_a_step_names_exists() -> None:
    spec = world.declared()
    plan = make_plan(spec, world.LOCK, world.fresh(spec))
    assert {s.role for s in plan.of(Action.CHANGE)} <= set(ROLES)
    assert all((ROOT / "roles" / role / "tasks" / "main.yml").is_file() for role in ROLES)


def test_text_from_the_host_is_never_a_template() -> None:
    """A hostile host would run commands on the control machine by it."""
    spec = world.declared()
    document = world.fresh_document(spec)
    hostile = "{{ lookup('pipe', 'touch /tmp/owned') }}"
    document["files"]["/etc/docker/daemon.json"] = world.file(json.dumps({"labels": [hostile]}))
    document["host"]["boot_id"] = hostile
    found = role_variables(make_plan(spec, world.LOCK, parse(document)))
    assert found["b300kit_plan"]["boot_id"] == {"__ansible_unsafe": hostile}

    def bare(value: object) -> list[str]:
        if isinstance(value, dict):
            return [] if set(value) == {"__ansible_unsafe"} else [t for v in value.values() for t in bare(v)]
        if isinstance(value, list):
            return [t for v in value for t in bare(v)]
        return [value] if isinstance(value, str) else []

    texts = bare(found)
    assert len(texts) > 50
    assert not any(set(text) & set("{}[]#$'\"\\") for text in texts)
