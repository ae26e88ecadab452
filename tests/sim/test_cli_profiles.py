"""What `invoke plan` says of each simulated profile, against the healthy declaration: the exit status, and the real cause."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli import OnHost, Ran, edit, fleet_of, invoke, look

FAULTY = {
    "gb300-4": {"gpu.sms": ("148", "152"), "gpu.model": ("B300 SXM6", "NVIDIA GB300"), "gpu.memory": ("275040", "284208")},
    "b300-3": {"gpu.count": ("4", "3")},
    "remap-failed": {"gpu.remap": ("False", "GPU 1: True"), "gpu.recovery": ("none", "GPU 1: drain_and_reset"),
                     "gpu.xids": ("none", "64")},
    "pct-off": {"cpu.fast_cores": ("16 physical cores at 4600 MHz", "all cores are alike, and there is no Priority Core Turbo")},
    "ambiguous-cores": {"cpu.fast_cores": ("16 physical cores at 4600 MHz", "ambiguous")},
    "low-ram": {"memory.hicache": ("1.25 GiB", "1.0 GiB")},
    "mig-on": {"gpu.mig": ("off/off", "GPU 2: on/on")},
    "driver-mismatch": {"driver.library": ("580.95.05", "580.105.08")},
    "fabric-in-progress": {"gpu.fabric": ("completed/success", "GPU 0: in_progress")},
    "h200-4": {"gpu.model": ("B300", "NVIDIA H200"), "gpu.sms": ("148", "132"), "gpu.compute_capability": ("10.3", "9.0"),
               "gpu.memory": ("275040", "143771"), "gpu.pcie": ("gen 6 x16", "gen 5 x16"),
               "gpu.power_range": ("1100 W", "200-700 W"), "gpu.clock_range": ("2032 MHz", "1980 MHz")},
}  # fmt: skip
"""Profile -> what is refused at least: step -> (declared, found)."""
PENDING = ("b300-4", "persistence-lost")


@pytest.fixture(scope="module")
def hosts(sim_host: Callable[[str], str]) -> dict[str, str]:
    """Profile -> its host; three boot at once."""
    profiles = [*PENDING, *FAULTY]
    with ThreadPoolExecutor(3) as pool:
        return dict(zip(profiles, pool.map(sim_host, profiles), strict=True))


@pytest.fixture(scope="module")
def fleet(hosts: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those hosts, and no other."""
    groups = {"faulty": [hosts[p] for p in FAULTY], "new": [hosts[p] for p in PENDING]}
    return fleet_of(tmp_path_factory.mktemp("profiles") / "fleet", list(hosts.values()), groups)


@pytest.fixture(scope="module")
def planned(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One plan of all of them at once."""
    return invoke("plan", "--host", "all", B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path_factory.mktemp("runs"))


def test_twelve_hosts_with_different_ends_are_8(planned: Ran, hosts: dict[str, str]) -> None:
    assert planned.code == 8
    assert sorted(planned.document["hosts"]) == sorted(hosts.values())


@pytest.mark.parametrize("profile", PENDING)
def test_healthy_and_new_is_3(planned: Ran, hosts: dict[str, str], profile: str) -> None:
    name = hosts[profile]
    assert planned.ends()[name] == 3
    assert set(planned.steps(name).values()) == {"change"}
    assert not [f for f in planned.document["failures"] if f["where"].startswith(f"{name}:")]
    lost = {"gpu.persistence", "gpu.power_limit"}
    assert (lost <= set(planned.steps(name))) is (profile == "persistence-lost")


@pytest.mark.parametrize("profile", FAULTY)
def test_what_software_cannot_mend_is_4_with_every_reason(planned: Ran, hosts: dict[str, str], profile: str) -> None:
    name = hosts[profile]
    assert planned.ends()[name] == 4
    refused = {step for step, action in planned.steps(name).items() if action == "refuse"}
    told = {f["code"].removeprefix("plan."): f for f in planned.document["failures"] if f["where"].startswith(f"{name}:")}
    assert set(told) == refused
    for step, (declared, found) in FAULTY[profile].items():
        assert declared in told[step]["expected"]
        assert found in told[step]["found"]
    for failure in told.values():
        assert failure["expected"]
        assert failure["found"]
        assert failure["next"]


def test_one_host_ends_with_its_own_code_and_alike_ones_share_it(
    fleet: Path, hosts: dict[str, str], on_host: OnHost, tmp_path: Path
) -> None:
    before = look(on_host, hosts["gb300-4"])
    call = ("--host", hosts["gb300-4"])
    for words, code in ((("plan", *call), 4), (("provision", *call), 4), (("drift", *call), 4), (("plan", "--hosts", "new"), 3)):
        ran = invoke(*words, B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs")
        assert ran.code == code, ran.err
        assert set(ran.ends().values()) == {code}
    assert look(on_host, hosts["gb300-4"]) == before


def test_a_fabric_in_progress_is_given_its_time_and_no_more(fleet: Path, hosts: dict[str, str], tmp_path: Path) -> None:
    began = time.monotonic()
    ran = invoke("plan", "--host", hosts["fabric-in-progress"], B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs")
    assert ran.code == 4
    assert "NVLink fabric in progress" in ran.err
    assert 2 < time.monotonic() - began < 30


def test_a_fabric_that_completes_in_that_time_is_no_refusal(
    fresh_sim_host: Callable[[str], str], on_host: OnHost, tmp_path: Path
) -> None:
    name = fresh_sim_host("fabric-in-progress")
    fleet = fleet_of(tmp_path / "fleet", [name])
    edit(fleet, name, lambda spec: spec["gpus"].update(fabric_wait_s=60))
    state = "for i in 0 1 2 3; do echo 3 > /run/sim/gpus/gpu.$i.fabric_state; done"
    on_host(name, f"sudo systemd-run --quiet --on-active=5s sh -c '{state}'")
    ran = invoke("plan", "--host", name, B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs")
    assert ran.code == 3, ran.document["failures"]
    assert "NVLink fabric in progress" in ran.err


def test_what_is_declared_for_another_machine_is_refused_with_every_reason_at_once(
    fleet: Path, hosts: dict[str, str], on_host: OnHost, tmp_path: Path
) -> None:
    """The other direction of a faulty profile: a healthy host, and the file of a bigger one at its address."""
    name = hosts["b300-4"]
    other = fleet_of(tmp_path / "fleet", [name])

    def bigger(spec: dict) -> None:
        spec["gpus"] |= {"count": 8, "sms": 152, "model": "NVIDIA GB300", "compute_capability": "10.4", "power_limit_w": 1400}
        spec["cpu"] |= {"packages": 4, "physical_cores": 256}
        spec["memory"] |= {"total_gib_min": 4000}
        spec["gpus"]["driver"]["minimum"] = "999.1"

    edit(other, name, bigger)
    before = look(on_host, name)
    ran = invoke("provision", "--host", name, B300KIT_FLEET=other, B300KIT_RUNS=tmp_path / "runs")
    assert ran.code == 4
    assert {
        "plan.gpu.count", "plan.gpu.sms", "plan.gpu.model", "plan.gpu.compute_capability", "plan.gpu.power_range",
        "plan.driver.minimum", "plan.memory.total", "plan.cpu.cores",
    } <= set(ran.codes), ran.codes  # fmt: skip
    assert look(on_host, name) == before
