"""A provisioned host, broken one thing at a time: the step that must change, the role, and nothing refused."""

from __future__ import annotations

from typing import Any

import pytest

from kit.facts.model import parse
from kit.plan import where
from kit.plan.make import make_plan
from kit.plan.model import Action
from tests.unit.plan import world
from tests.unit.plan.test_refusals import put

STOPPED = {
    "load": "loaded",
    "active": "failed",
    "enabled": "enabled",
    "needs_daemon_reload": False,
    "result": "exit-code",
    "since_boot_s": 1.0,
}
SETTINGS = '{"live-restore": true}\n'

CASES: list[tuple[str, str, str, Any]] = [
    ("memory.thp", "memory", "memory.thp", "always"),
    ("memory.shm", "memory", "memory.shm_kib", 65536),
    ("memory.huge_pages", "memory", "memory.huge_pages_total", 512),
    ("memory.swap", "memory", "memory.swap_total_kib", 1024),
    ("memory.swappiness", "memory", "sysctls.vm~swappiness", "60"),
    ("cpu.governor", "cpu", "cpu.logical.17.governor", "powersave"),
    ("cpu.cstates", "cpu", "cpu.logical.3.cstate_latency_us", 210),
    ("cpu.interrupts", "cpu", "cpu.irq_cpus", [0, 128, 77]),
    ("cpu.interrupts", "cpu", "cpu.default_irq_cpus", list(range(256))),
    ("cpu.irqbalance", "cpu", "services.irqbalance~service.needs_daemon_reload", True),
    ("cpu.priority_core_turbo", "cpu", "cpu.priority.enabled", False),
    ("cpu.unit", "cpu", f"services.{where.CPU_UNIT.replace('.', '~')}", STOPPED),
    ("gpu.persistence", "gpu", "gpu.gpus.1.persistence", False),
    ("gpu.power_limit", "gpu", "gpu.gpus.2.power_limit_w", 900.0),
    ("gpu.sm_clock", "gpu", "gpu.gpus.3.locked_sm_clock", {"unknown": "another boot"}),
    ("gpu.unit", "gpu", f"services.{where.GPU_UNIT.replace('.', '~')}", STOPPED),
    ("docker.daemon", "container_engine", "docker.live_restore", False),
    ("docker.daemon", "container_engine", "docker.data_root", "/mnt/docker"),
    ("docker.daemon", "container_engine", f"files.{where.DOCKER_LOADED.replace('.', '~')}", world.file(SETTINGS)),
    ("docker.limits", "container_engine", "limits.memlock_kib", 8192),
    ("docker.service", "container_engine", "services.docker~service.active", "inactive"),
    ("docker.service", "container_engine", "services.docker~service.needs_daemon_reload", True),
    ("docker.cdi", "container_engine", f"files.{where.CDI_SPECS[0].replace('.', '~')}", world.NO_FILE),
    ("firewall.table", "firewall", "firewall.table_text", ""),
    ("firewall.table", "firewall", "firewall.table_text", "table inet b300kit {\n\tchain guard { accept }\n}\n"),
    ("firewall.unit", "firewall", f"services.{where.FIREWALL_UNIT.replace('.', '~')}.enabled", "disabled"),
    ("packages.hold.containerd", "packages", "packages.containerd.held", False),
    ("node.data_dir", "node", "files./var/lib/b300kit.owner", "root"),
    ("node.user", "node", "users.b300kit", {"unknown": "no such user"}),
]  # fmt: skip


@pytest.mark.parametrize(("id", "role", "path", "value"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_changes(id: str, role: str, path: str, value: Any) -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    put(document, path, value)
    plan = make_plan(spec, world.LOCK, parse(document))
    steps = {s.id: s for s in plan.steps}
    assert steps[id].action is Action.CHANGE, steps[id].reason
    assert steps[id].role == role
    assert not plan.refused, [s.reason for s in plan.of(Action.REFUSE)]


READERS = {
    where.CPU_CONFIG: "cpu.unit", where.CPU_SCRIPT: "cpu.unit", where.unit_file(where.CPU_UNIT): "cpu.unit",
    where.GPU_CONFIG: "gpu.unit", where.GPU_SCRIPT: "gpu.unit", where.unit_file(where.GPU_UNIT): "gpu.unit",
    where.MEMORY_CONFIG: "memory.unit", where.MEMORY_SCRIPT: "memory.unit", where.unit_file(where.MEMORY_UNIT): "memory.unit",
    where.IRQBALANCE_ENV: "cpu.irqbalance", where.IRQBALANCE_DROP_IN: "cpu.irqbalance",
    where.FIREWALL_RULES: "firewall.table", where.unit_file(where.FIREWALL_UNIT): "firewall.unit",
    where.DOCKER_DROP_IN: "docker.service", where.unit_file(where.CDI_UNIT): "docker.cdi_unit",
}  # fmt: skip
"""Which step starts the reader of a file again. The others are read anew at each use (logins, apt, sysctl at boot), or their
reader is judged by what it runs with (docker)."""
FILES = [path for path in where.MANAGED_FILES if path != where.FSTAB]


@pytest.mark.parametrize("path", FILES)
@pytest.mark.parametrize("what", ["content", "mode", "owner", "gone"])
def test_each_managed_file_is_put_back_and_its_reader_starts_again(path: str, what: str) -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    now = dict(document["files"][path])
    content = "{}" if path == where.DAEMON_JSON else "tampered"
    broken = {"content": world.file(content, now["mode"]), "mode": {**now, "mode": "0666"}, "owner": {**now, "owner": "nobody"}}
    document["files"][path] = broken.get(what, dict(world.NO_FILE))
    plan = make_plan(spec, world.LOCK, parse(document))
    changed = [s for s in plan.of(Action.CHANGE) if s.file is not None and s.file.path == path]
    assert len(changed) == 1
    assert not plan.refused
    reader = READERS.get(path)
    assert reader is None or next(s for s in plan.steps if s.id == reader).action is Action.CHANGE


def test_a_run_killed_between_file_and_reload_is_finished_by_the_next() -> None:
    """The file on disk is right; the daemon still runs with what it had: the partner step changes."""
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["files"][where.DOCKER_LOADED] = world.file("{}")
    document["docker"] |= {"live_restore": False}
    document["firewall"]["table_text"] = ""
    document["sysctls"]["vm.swappiness"] = "60"
    document["services"][where.GPU_UNIT]["active"] = "inactive"
    steps = world.planned(spec, document)
    for id in ("docker.daemon_file", "firewall.rules_file", "memory.sysctl_file", "gpu.config_file"):
        assert steps[id].action is Action.KEEP
    for id in ("docker.daemon", "firewall.table", "memory.swappiness", "gpu.unit"):
        assert steps[id].action is Action.CHANGE


def test_live_restore_alone_needs_a_reload_and_no_restart() -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["docker"]["live_restore"] = False
    step = world.planned(spec, document)["docker.daemon"]
    assert step.arguments == {"units_reload": [where.DOCKER_UNIT]}
    assert not step.disruptive


def test_an_operators_keys_in_daemon_json_stay() -> None:
    import json

    spec = world.declared()
    document = world.fresh_document(spec)
    theirs = {"registry-mirrors": ["https://mirror.example"], "log-opts": {"tag": "{{.Name}}"}, "features": {"buildkit": True}}
    document["files"][where.DAEMON_JSON] = world.file(json.dumps(theirs))
    file = world.planned(spec, document)["docker.daemon_file"].file
    assert file is not None
    merged = json.loads(file.content)
    assert merged["registry-mirrors"] == ["https://mirror.example"]
    assert merged["features"] == {"buildkit": True, "cdi": True}
    assert merged["log-opts"] == {"max-size": "100m", "max-file": "5"}
    document["files"][where.DAEMON_JSON] = world.file(json.dumps(merged))  # same meaning, other layout
    assert world.planned(spec, document)["docker.daemon_file"].action is Action.KEEP


def test_swap_lines_become_comments_and_nothing_else_moves() -> None:
    spec = world.declared()
    step = world.planned(spec, world.fresh_document(spec))["memory.swap_at_boot"]
    assert step.file is not None
    before, after = world.FSTAB.splitlines(), step.file.content.splitlines()
    assert after[0] == before[0]
    assert after[1].startswith("#")
    assert before[1] in after[1]
