"""``probe --burn-in`` on simulated hosts: measured, kept for the boot, judged by the plan, refused where it would disturb."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kit import flow as stages
from kit.errors import ExitCode
from kit.facts.unknown import is_known
from kit.outcome import Outcome
from kit.plan.model import Action, Step
from kit.spec.model import BurnIn
from kit.spec.target import Target
from tests.sim import applying

OnHost = Callable[..., Any]
FLOORS = BurnIn(nccl_all_reduce_gbps=100, nvlink_gbps=700, hbm="required", clock_synchronized=False)
IDS = ("burn_in.nccl_all_reduce", "burn_in.nvlink", "burn_in.hbm")


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("B300KIT_RUNS", str(tmp_path / "runs"))
    yield


def declared(name: str) -> Target:
    """The host with floors."""
    it = applying.target(name)
    return Target(it.spec.model_copy(update={"burn_in": FLOORS}), it.lock, it.fleet, it.source)


def burn(name: str) -> tuple[ExitCode | int, Outcome]:
    outcome = stages.probe([declared(name)], burn_in=True)
    return outcome.hosts[name].exit_code, outcome


def plan(name: str) -> tuple[int, dict[str, Step]]:
    """Exit code, and the burn-in's steps."""
    outcome = stages.plan([declared(name)])
    steps = {s["id"]: s for s in outcome.hosts[name].result["steps"]}
    return outcome.hosts[name].exit_code, {id: steps[id] for id in IDS}


def reboot(name: str, on_host: OnHost) -> None:
    read = "cat /proc/sys/kernel/random/boot_id"
    before = on_host(name, read).stdout
    on_host(name, "sudo systemctl reboot", check=False)
    deadline = time.monotonic() + 90
    while True:
        now = on_host(name, read, check=False)
        if now.returncode == 0 and now.stdout != before:
            return
        assert time.monotonic() < deadline, "it did not come back"
        time.sleep(0.5)


def test_measured_once_the_plan_goes_by_it_until_the_next_boot(fresh_sim_host: Callable[[str], str], on_host: OnHost) -> None:
    name = fresh_sim_host("b300-4")
    code, before = plan(name)
    assert code == ExitCode.REFUSED
    assert all("not measured in this boot" in step["reason"] + str(step) for step in before.values())
    code, outcome = burn(name)
    assert code == ExitCode.OK
    found = outcome.hosts[name].result["facts"]["burn_in"]
    assert (found["nvlink_gbps"], found["hbm_ok"]) == (750.0, True)
    assert 100 < found["nccl_all_reduce_gbps"] <= 650
    assert len(found["measured"]["links"]) == 6
    code, after = plan(name)
    assert code == ExitCode.CHANGE_PENDING
    assert {step["action"] for step in after.values()} == {Action.KEEP}
    reboot(name, on_host)
    assert plan(name)[0] == ExitCode.REFUSED


def test_a_bad_word_of_memory_refuses_and_is_named_though_nothing_is_declared(fresh_sim_host: Callable[[str], str]) -> None:
    name = fresh_sim_host("hbm-fault")
    assert stages.plan([applying.target(name)]).hosts[name].exit_code == ExitCode.CHANGE_PENDING
    assert burn(name)[0] == ExitCode.OK
    outcome = stages.plan([applying.target(name)]).hosts[name]
    assert outcome.exit_code == ExitCode.REFUSED
    assert [f.code for f in outcome.failures] == ["plan.burn_in.hbm"]
    assert "GPU 2: " in outcome.failures[0].found and f"the first at byte {123456 << 20}" in outcome.failures[0].found


def test_a_slow_link_refuses_with_its_pair(fresh_sim_host: Callable[[str], str]) -> None:
    name = fresh_sim_host("slow-link")
    assert burn(name)[0] == ExitCode.OK
    outcome = stages.plan([declared(name)]).hosts[name]
    assert outcome.exit_code == ExitCode.REFUSED
    assert [f.code for f in outcome.failures] == ["plan.burn_in.nccl_all_reduce", "plan.burn_in.nvlink"]
    assert outcome.failures[1].found.startswith("48 GB/s between GPUs 0 and 3, the slowest pair, measured 20")


def test_a_gpu_with_work_and_a_host_that_serves_are_left_alone(fresh_sim_host: Callable[[str], str], on_host: OnHost) -> None:
    name = fresh_sim_host("b300-4")
    on_host(name, "echo 4242 | sudo tee /run/sim/gpus/gpu.1.compute_pid")
    on_host(name, "sudo mkdir -p /var/lib/b300kit")
    on_host(name, """echo '{"state": "joined"}' | sudo tee /var/lib/b300kit/membership.json""")
    code, outcome = burn(name)
    assert code == ExitCode.REFUSED
    assert [f.code for f in outcome.hosts[name].failures] == ["burn_in.refused"] * 2
    assert {f.found for f in outcome.hosts[name].failures} == {"it is joined to a router", "GPU 1 has work: process 4242"}
    _, facts, _ = applying.look(name)
    assert not is_known(facts.burn_in.measured)
