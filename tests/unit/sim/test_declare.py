"""The fleet of the simulated hosts: valid, always the healthy node, and an operator's edit survives another host's start."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from kit.sim import declare
from kit.sim.hardware import profile as profiles
from kit.sim.model import HostState
from kit.sim.rootfs import packages
from kit.spec.model import HostSpec, Lock

KEY = "ssh-ed25519 " + "A" * 68


def _state(name: str, profile: str = "b300-4") -> HostState:
    return HostState(
        name=name,
        profile=profile,
        runtime="nspawn",
        index=10,
        address="169.254.77.10",
        host_key=KEY,
        machine_boot_id="b",
        supervisor_pid=1,
        supervisor_start=1,
    )


def _read(path: Path):
    return YAML(typ="safe").load(path.read_text())


@pytest.mark.parametrize(
    ("memlock", "nofile", "expected"),
    [
        ((8388608, 8388608), (20000, 20000), (8192, 16384)),
        ((65536, 65536), (1024, 4096), (64, 4096)),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), (resource.RLIM_INFINITY, resource.RLIM_INFINITY), (8192, 16384)),
    ],
)
def test_declared_limits_stay_below_the_machines(memlock, nofile, expected):
    assert declare.sandbox_limits(memlock, nofile) == expected


def test_a_faulty_host_gets_the_healthy_spec(tmp_path):
    declare.write_fleet(tmp_path, [_state("a", "gb300-4"), _state("b")], Path("/k"))
    a, b = (HostSpec.model_validate(_read(tmp_path / f"hosts/{name}.yml")) for name in "ab")
    assert a.gpus == b.gpus
    assert (a.gpus.sms, a.gpus.count, a.cpu.fast_cores.count, a.cpu.physical_cores) == (148, 4, 16, 128)
    assert _read(tmp_path / "fleet.yml")["groups"] == {"sim": ["a", "b"]}


def test_the_healthy_profile_is_what_is_declared():
    spec = HostSpec.model_validate(declare.host_spec(_state("a"), Path("/k"), 8192, 16384))
    loaded = profiles.load("b300-4")
    gpu = loaded.gpus[0]
    assert (gpu.name, gpu.sms, gpu.memory_mib, loaded.gpu_count) == (
        spec.gpus.model,
        spec.gpus.sms,
        spec.gpus.memory_mib,
        spec.gpus.count,
    )
    assert gpu.power_limit_max_mw == spec.gpus.power_limit_w * 1000
    assert gpu.clock_sm_max_mhz == spec.gpus.sm_clock_mhz
    assert loaded.cpu.fast_khz == spec.cpu.fast_cores.mhz * 1000


def test_low_ram_is_less_than_declared():
    spec = HostSpec.model_validate(declare.host_spec(_state("a"), Path("/k"), 8192, 16384))
    limit = profiles.load("low-ram").memory_limit_mib
    assert limit is not None
    assert limit / 1024 < spec.memory.total_gib_min


def test_lock_and_driver_are_what_a_fresh_host_has(tmp_path):
    declare.write_fleet(tmp_path, [], Path("/k"))
    lock = Lock.model_validate(_read(tmp_path / "lock.yml"))
    assert lock.driver == profiles.load("b300-4").driver.module
    assert lock.packages == {name: packages.installed_version(name) for name in packages.HELD}


def test_an_edit_survives_and_a_gone_host_leaves(tmp_path):
    declare.write_fleet(tmp_path, [_state("a"), _state("b")], Path("/k"))
    edited = tmp_path / "hosts/a.yml"
    edited.write_text(edited.read_text().replace("count: 4", "count: 8"))
    declare.write_fleet(tmp_path, [_state("a")], Path("/k"))
    assert "count: 8" in edited.read_text()
    assert not (tmp_path / "hosts/b.yml").exists()
    declare.write_fleet(tmp_path, [_state("a")], Path("/k"), fresh="a")
    assert "count: 8" not in edited.read_text()


def test_the_host_key_stays_on_one_line(tmp_path):
    declare.write_fleet(tmp_path, [_state("a")], Path("/k"))
    assert f"  host_key: {KEY}\n" in (tmp_path / "hosts/a.yml").read_text()
