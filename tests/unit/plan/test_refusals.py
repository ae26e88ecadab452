"""What software cannot mend, one fact at a time: the step that must refuse, and that it says what was found."""

from __future__ import annotations

from typing import Any

import pytest

from kit.facts.model import parse
from kit.plan import where
from kit.plan.make import make_plan
from kit.plan.model import Action
from tests.hosts import build
from tests.unit.plan import world

UNKNOWN = {"unknown": "the tool hangs"}

CASES: list[tuple[str, str, Any]] = [
    ("gpu.sms", "gpu.gpus.0.sms", 152),
    ("gpu.sms", "gpu.gpus.0.cores_over_128", 152.0),
    ("gpu.sms", "gpu.gpus.3.sms", UNKNOWN),
    ("gpu.model", "gpu.gpus.1.name", "NVIDIA H200"),
    ("gpu.compute_capability", "gpu.gpus.2.compute_capability", "12.0"),
    ("gpu.memory", "gpu.gpus.0.memory_mib", 183359),
    ("gpu.mig", "gpu.gpus.0.mig_current", True),
    ("gpu.mig", "gpu.gpus.0.mig_pending", True),
    ("gpu.mig", "gpu.gpus.0.mig_pending", UNKNOWN),
    ("gpu.ecc", "gpu.gpus.0.ecc_current", False),
    ("gpu.ecc", "gpu.gpus.0.ecc_pending", False),
    ("gpu.remap", "gpu.gpus.0.remap_failed", True),
    ("gpu.remap", "gpu.gpus.0.remap_failed", UNKNOWN),
    ("gpu.recovery", "gpu.gpus.0.recovery_action", "gpu_reset"),
    ("gpu.nvlink", "gpu.gpus.0.p2p_nvlink.3", False),
    ("gpu.nvlink", "gpu.gpus.0.p2p_nvlink.3", UNKNOWN),
    ("gpu.fabric", "gpu.gpus.0.fabric_state", "in_progress"),
    ("gpu.fabric", "gpu.gpus.0.fabric_status", "failure"),
    ("gpu.firmware", "gpu.gpus.0.vbios", "97.10.00.00.01"),
    ("gpu.firmware", "gpu.gpus.0.inforom", UNKNOWN),
    ("gpu.xids", "gpu.xids_since_boot", ["12.5 0000:1b:00 79"]),
    ("gpu.xids", "gpu.xids_since_boot", UNKNOWN),
    ("gpu.power_range", "gpu.gpus.0.power_limit_max_w", 1000.0),
    ("gpu.power_range", "gpu.gpus.0.power_limit_min_w", UNKNOWN),
    ("gpu.clock_range", "gpu.gpus.0.max_sm_clock_mhz", 1980),
    ("gpu.power_limit", "gpu.gpus.0.power_limit_w", UNKNOWN),
    ("driver.minimum", "gpu.driver_version", "570.133.20"),
    ("driver.minimum", "gpu.driver_version", UNKNOWN),
    ("driver.library", "gpu.library_version", "580.105.08"),
    ("driver.lock", "gpu.driver_version", "580.105.08"),
    ("fabric_manager.version", "gpu.fabric_manager_version", "580.82.07"),
    ("fabric_manager.lock", "gpu.fabric_manager_version", "580.82.07"),
    ("fabric_manager.service", "services.nvidia-fabricmanager~service.active", "failed"),
    ("cpu.sockets", "cpu.packages", 1),
    ("cpu.cores", "cpu.physical_cores", 112),
    ("host.clock", "host.clock_synchronized", False),
    ("host.clock", "host.clock_synchronized", UNKNOWN),
    ("memory.total", "memory.total_kib", 1024 * 1024 * 1024),
    ("memory.hicache", "memory.available_kib", 900 * 1024 * 1024),
    ("memory.hicache", "memory.available_kib", UNKNOWN),
    ("packages.hold.containerd", "packages.containerd", {"unknown": "not installed"}),
    ("packages.hold.docker.io", "packages.docker~io.version", "27.0-1"),
    ("docker.cdi", "files./usr/bin/nvidia-ctk", world.NO_FILE),
    ("docker.daemon_file", "files./etc/docker/daemon~json", world.file("not json")),
    ("docker.daemon_file", "files./etc/docker/daemon~json", world.file("[]")),
    ("memory.swap_at_boot", "files./etc/fstab.content", {"unknown": "not readable by everyone"}),
    ("node.user", "users.b300kit", "0:0:root:/root:/bin/bash"),
]


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """As world.put; ``~`` stands for a dot inside a name."""
    *way, last = [part.replace("~", ".") for part in path.split(".")]
    spot: Any = document
    for key in way:
        spot = spot[int(key)] if isinstance(spot, list) else spot[key]
    spot[int(last) if isinstance(spot, list) else last] = value


@pytest.mark.parametrize(("id", "path", "value"), CASES, ids=[f"{c[0]}-{i}" for i, c in enumerate(CASES)])
def test_refuses(id: str, path: str, value: Any) -> None:
    spec = world.declared()
    document = world.fresh_document(spec)
    assert world.planned(spec, document)[id].action is not Action.REFUSE
    put(document, path, value)
    step = world.planned(spec, document)[id]
    assert step.action is Action.REFUSE
    assert step.next
    if value == UNKNOWN:
        assert "the tool hangs" in step.reason + step.found


def test_a_missing_gpu_refuses_and_so_do_all_other_faults_at_once() -> None:
    spec = world.declared()
    document = world.fresh_document(spec)
    document["gpu"]["gpus"] = document["gpu"]["gpus"][:3]
    document["gpu"]["gpus"][0]["sms"] = 152
    document["gpu"]["gpus"][1]["mig_current"] = True
    document["cpu"]["physical_cores"] = 64
    refused = {s.id for s in make_plan(spec, world.LOCK, parse(document)).of(Action.REFUSE)}
    assert {"gpu.count", "gpu.sms", "gpu.mig", "cpu.cores"} <= refused


def test_no_gpu_stack_refuses_every_gpu_step() -> None:
    spec = world.declared()
    document = world.fresh_document(spec)
    document["gpu"] = {"unknown": "no NVIDIA stack on this host"}
    steps = world.planned(spec, document)
    for id, step in steps.items():
        if id.startswith(("gpu.", "driver.", "fabric_manager.")) and not id.endswith(
            ("_file", ".unit", "driver.packages", "gpu.pcie", "manager.service")
        ):
            assert step.action is Action.REFUSE, id


@pytest.mark.parametrize(("name", "refused"), [("gpu.sms", "152"), ("gpu.model", "GB300")], ids=["sms", "model"])
def test_another_hosts_hardware_is_named(name: str, refused: str) -> None:
    spec = world.declared()
    document = world.fresh_document(spec)
    for gpu in document["gpu"]["gpus"]:
        gpu |= {"sms": 152, "cores_over_128": 152.0, "name": "NVIDIA GB300"}
    step = world.planned(spec, document)[name]
    assert step.action is Action.REFUSE
    assert refused in step.found
    assert all(f"GPU {i}" in step.found for i in range(4))


def test_a_pending_remap_warns_but_does_not_block() -> None:
    spec = world.declared()
    document = world.fresh_document(spec)
    document["gpu"]["gpus"][2]["remap_pending"] = True
    step = world.planned(spec, document)["gpu.remap"]
    assert step.action is Action.KEEP
    assert "WARNING" in step.reason
    assert "GPU 2" in step.reason


def test_a_declared_pcie_link_is_judged_by_what_the_slot_can_do() -> None:
    spec = world.declared(gpus__pcie={"generation": 6, "width": 16})
    document = world.fresh_document(spec)
    document["gpu"]["gpus"][0]["pcie_generation"] = 1  # at rest
    assert world.planned(spec, document)["gpu.pcie"].action is Action.KEEP
    document["gpu"]["gpus"][0]["pcie_width"] = 8
    assert world.planned(spec, document)["gpu.pcie"].action is Action.REFUSE


@pytest.mark.parametrize("value", [float("nan"), 700.0, {"unknown": "no tool"}])
def test_a_bandwidth_floor_is_met_only_by_a_number_at_or_above_it(value: Any) -> None:
    spec = world.declared(burn_in__nccl_all_reduce_gbps=800)
    document = world.fresh_document(spec)
    document["burn_in"]["nccl_all_reduce_gbps"] = 800.0
    assert world.planned(spec, document)["burn_in.nccl_all_reduce"].action is Action.KEEP
    document["burn_in"]["nccl_all_reduce_gbps"] = value
    assert world.planned(spec, document)["burn_in.nccl_all_reduce"].action is Action.REFUSE


def test_an_unlocked_version_refuses() -> None:
    spec = world.declared()
    lock = world.LOCK.model_copy(update={"driver": None, "fabric_manager": None})
    steps = world.planned(spec, world.fresh_document(spec), lock)
    assert steps["driver.lock"].action is Action.REFUSE
    assert steps["fabric_manager.lock"].action is Action.REFUSE


def test_ssh_is_never_in_a_guarded_range() -> None:
    for ports in ("22", "20-30", "1-65535"):
        spec = world.declared(network__engine={"ports": ports, "from": ["192.0.2.1/32"]})
        assert world.planned(spec, world.fresh_document(spec))["firewall.ssh"].action is Action.REFUSE
    spec = world.declared(connection__port=30000)
    assert world.planned(spec, world.fresh_document(spec))["firewall.ssh"].action is Action.REFUSE


def test_one_h200_is_refused_by_what_its_own_driver_said() -> None:
    """Real NVML and CUDA answers of 2026-11-30 against the B300 spec: every difference at once, nothing unread."""
    plan = make_plan(world.declared(), world.LOCK, build.case("h200-one"))
    refused = {s.id: s.found for s in plan.of(Action.REFUSE) if s.id.startswith("gpu.")}
    assert {"gpu.model", "gpu.count", "gpu.sms", "gpu.compute_capability", "gpu.memory", "gpu.nvlink"} <= set(refused)
    assert refused["gpu.nvlink"] == "1 GPU, no pair"
    assert "132" in refused["gpu.sms"]
    assert not any("not verified" in found for id, found in refused.items() if id in ("gpu.sms", "gpu.model", "gpu.memory"))


STARTED = [(f"{unit.removeprefix('b300kit-').removesuffix('.service')}.unit", unit) for unit in where.OUR_UNITS]
STARTED = [("docker.cdi_unit" if unit == where.CDI_UNIT else id, unit) for id, unit in STARTED]
STARTED.append(("docker.service", where.DOCKER_UNIT))


@pytest.mark.parametrize(("id", "unit"), STARTED)
@pytest.mark.parametrize("make", [world.fresh_document, world.provisioned_document])
@pytest.mark.parametrize(("key", "state"), [("load", "masked"), ("enabled", "masked-runtime")])
def test_a_masked_unit_is_refused_and_named(id: str, unit: str, make: Any, key: str, state: str) -> None:
    """systemctl starts none of these, so an apply would end half-way at it, each time."""
    spec = world.declared()
    document = make(spec)
    document["services"][unit] |= {key: state, "needs_daemon_reload": True}
    step = world.planned(spec, document)[id]
    assert (step.action, step.found) == (Action.REFUSE, "masked")
    assert f"systemctl unmask {unit}" in step.next


@pytest.mark.parametrize(("id", "unit"), STARTED)
@pytest.mark.parametrize("state", ["not-found", "bad-setting", "error"])
def test_a_unit_that_cannot_be_loaded_is_refused_unless_this_plan_brings_it(id: str, unit: str, state: str) -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["services"][unit] |= {"load": state, "active": "inactive", "enabled": UNKNOWN}
    step = world.planned(spec, document)[id]
    assert (step.action, step.found) == (Action.REFUSE, state)
    assert f"systemctl status {unit}" in step.next
    if unit == where.DOCKER_UNIT:
        document["packages"][spec.docker.package] = {"unknown": "not installed"}
    else:
        document["files"][where.unit_file(unit)] = world.NO_FILE
    assert world.planned(spec, document)[id].action is Action.CHANGE


def test_a_masked_irqbalance_is_refused_only_when_it_would_be_started_again() -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["services"][where.IRQBALANCE_UNIT] |= {"load": "masked", "active": "active", "needs_daemon_reload": True}
    step = world.planned(spec, document)["cpu.irqbalance"]
    assert (step.action, "unmask irqbalance" in step.next) == (Action.REFUSE, True)
    document["services"][where.IRQBALANCE_UNIT]["active"] = "inactive"
    assert world.planned(spec, document)["cpu.irqbalance"].action is Action.KEEP


def test_a_unit_that_starts_again_shows_that_it_is_disabled_too() -> None:
    spec = world.declared()
    document = world.provisioned_document(spec)
    document["files"][where.GPU_CONFIG] = world.NO_FILE
    document["services"][where.GPU_UNIT]["enabled"] = "disabled"
    step = world.planned(spec, document)["gpu.unit"]
    assert (step.action, step.found) == (Action.CHANGE, "active, disabled")
