"""The fleet folder of the simulated hosts: always the healthy node, so that a faulty one is judged against it."""

from __future__ import annotations

import io
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from kit.files import replace
from kit.sim.machine import qemu
from kit.sim.model import HostState
from kit.sim.rootfs.layer import USER
from kit.sim.rootfs.packages import DRIVER, HELD, installed_version
from kit.spec.model import FleetFile, HostSpec, Lock

LOCKED = {name: installed_version(name) for name in HELD}


def sandbox_limits(memlock: tuple[int, int], nofile: tuple[int, int]) -> tuple[int, int]:
    """(memlock KiB, open files) to declare, from this machine's own (soft, hard) limits in bytes and files; pure.

    A container may not be able to raise limits beyond its machine's, so the declared ones stay below those.
    """
    hard_kib = 65536 if memlock[1] == resource.RLIM_INFINITY else memlock[1] // 1024
    hard_files = 65536 if nofile[1] == resource.RLIM_INFINITY else nofile[1]
    return max(64, min(8192, hard_kib)), max(1024, min(16384, hard_files))


def host_spec(state: HostState, identity_file: Path, memlock_kib: int, nofile: int) -> dict[str, Any]:
    """The declared healthy node as the document that is written; checked against the model. Pure."""
    document: dict[str, Any] = {
        "schema_version": 1,
        "name": state.name,
        "connection": {
            "address": state.address,
            "port": state.port,
            "user": USER,
            "host_key": state.host_key,
            "identity_file": str(identity_file),
        },
        "gpus": {
            "model": "NVIDIA B300 SXM6 AC",
            "count": 4,
            "sms": 148,
            "compute_capability": "10.3",
            "memory_mib": 275040,
            "power_limit_w": 1100,
            "sm_clock_mhz": 2032,
            "fabric_wait_s": 2,
            "pcie": {"generation": 6, "width": 16},
            "driver": {"minimum": "580.65.06"},
        },
        "cpu": {
            "packages": 2,
            "physical_cores": 128,
            "fast_cores": {"count": 16, "mhz": 4600, "slow_mhz": 2300, "evidence": "hint"},
            "max_cstate_latency_us": 10,
        },
        "memory": {
            "total_gib_min": 1.5,
            "hicache": {"size_gib": 0.25},
            "reserve_gib": 0.25,
            "memlock_kib": memlock_kib,
            "nofile": nofile,
            "shm_gib": 0.125,
        },
        "packages": {"hold": sorted(LOCKED)},
        "network": {
            "engine": {"ports": "30000-30003", "from": ["169.254.77.1/32"]},
            "metrics": {"ports": "9400", "from": ["169.254.77.1/32"]},
            "nccl": {"ports": "28028", "from": []},
        },
        # A container shares its machine's clock: whether that is synchronized is not this host's to declare.
        "burn_in": {"clock_synchronized": False},
        "image": "sim",
        "engine": "production",
    }
    if state.runtime == "qemu":
        _as_machine(document)
    HostSpec.model_validate(document)
    return document


def _as_machine(document: dict[str, Any]) -> None:
    """The same GPUs on a machine of its own: its real processors, and limits and huge pages that it can really have."""
    cores = qemu.PACKAGES * qemu.CORES
    document["cpu"] |= {"packages": qemu.PACKAGES, "physical_cores": cores, "os_cores": 1}
    document["cpu"]["fast_cores"] |= {"count": cores // 2}
    document["memory"] |= {
        "hicache": {"size_gib": 0.125},
        "memlock_kib": "unlimited",
        "nofile": 1048576,
        "huge_pages": {"size_kib": 2048, "count": 32},
    }
    document["network"]["engine"]["from"] = ["10.0.2.2/32"]
    document["network"]["metrics"]["from"] = ["10.0.2.2/32"]


def _text(document: dict[str, Any]) -> str:
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096  # a host key stays on one line, for people who grep
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(document, stream)
    return stream.getvalue()


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace(path, text.encode())


def write_fleet(folder: Path, states: Iterable[HostState], identity_file: Path, fresh: str | None = None) -> None:
    """Make the fleet folder hold exactly `states`. Call with the fleet lock held.

    Files that are there stay as they are (an operator may be trying a change), except that of the `fresh` host.
    """
    listed = sorted(states, key=lambda state: state.name)
    memlock, nofile = sandbox_limits(resource.getrlimit(resource.RLIMIT_MEMLOCK), resource.getrlimit(resource.RLIMIT_NOFILE))
    names = {f"{state.name}.yml" for state in listed}
    for state in listed:
        if state.name != fresh and (folder / "hosts" / f"{state.name}.yml").exists():
            continue
        _replace(folder / "hosts" / f"{state.name}.yml", _text(host_spec(state, identity_file, memlock, nofile)))
    for stale in (folder / "hosts").glob("*.yml"):
        if stale.name not in names:
            stale.unlink()
    fleet = {"schema_version": 1, "groups": {"sim": [state.name for state in listed]}}
    lock = {"schema_version": 1, "driver": DRIVER, "fabric_manager": DRIVER, "packages": LOCKED}
    FleetFile.model_validate(fleet)
    Lock.model_validate(lock)
    _replace(folder / "fleet.yml", _text(fleet))
    _replace(folder / "lock.yml", _text(lock))
