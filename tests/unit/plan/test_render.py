"""Files from the spec: values only, and nothing a hostile spec could break out of."""

from __future__ import annotations

import json
import shlex

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from kit.plan import render
from kit.plan.make import make_plan
from kit.plan.model import Action
from tests.unit.plan import world
from tests.unit.plan.world import cpus


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        render.text("sysctl.conf.j2")


@given(st.sets(st.integers(0, 1023), max_size=200))
def test_cpu_list_and_mask_say_the_same(wanted: set[int]) -> None:
    assert set(cpus(render.cpu_list(wanted))) == wanted
    value = int(render.cpu_mask(wanted).replace(",", ""), 16)
    assert {bit for bit in range(value.bit_length()) if value >> bit & 1} == wanted


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("service_user", "x; rm -rf /"),
        ("service_user", "root\nroot - nofile 1"),
        ("data_dir", "/var/lib/../../etc"),
        ("data_dir", "/tmp/$(id)"),
        ("docker__package", "docker.io -o APT::Update::Pre-Invoke=x"),
        ("docker__data_root", '/x", "debug": true, "y": "'),
        ("packages__hold", ["containerd; reboot"]),
        ("packages__hold", ["--force"]),
        ("network__engine", {"ports": "30000; flush ruleset", "from": []}),
        ("network__engine", {"ports": "30000", "from": ["0.0.0.0/0 } ; flush ruleset"]}),
        ("gpus__power_limit_w", "1100; id"),
        ("name", "../other"),
    ],
)
def test_hostile_values_never_reach_a_plan(path: str, value: object) -> None:
    with pytest.raises(ValidationError):
        world.declared(**{path: value})


def test_what_reaches_ansible_is_data_not_shell() -> None:
    """Arguments of steps are names, paths, flags and versions: nothing a shell would read differently."""
    plan = make_plan(world.declared(), world.LOCK, world.fresh(world.declared()))

    def words(value: object) -> list[str]:
        if isinstance(value, dict):
            return [w for v in value.values() for w in words(v)]
        if isinstance(value, list | tuple):
            return [w for v in value for w in words(v)]
        return [value] if isinstance(value, str) else []

    found = [w for step in plan.of(Action.CHANGE) for w in words(dict(step.arguments))]
    assert found
    assert all(shlex.quote(w) == w for w in found)


def test_a_host_script_is_one_file_without_our_packages() -> None:
    for name in ("cpu.py", "gpu.py", "memory.py"):
        text = render.script("/x", name).content
        assert "kit." not in "".join(line for line in text.splitlines() if line.startswith(("import", "from")))
        assert text.count("from __future__") == 1
        compile(text, name, "exec")


def test_settings_are_json() -> None:
    file = render.settings("/etc/b300kit/x.json", {"b": 1, "a": None})
    assert json.loads(file.content) == {"a": None, "b": 1}
