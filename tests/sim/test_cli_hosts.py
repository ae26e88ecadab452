"""Eight hosts in one command: done in parallel, told apart, and one that fails keeps none of the others from its end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.sim import flow
from tests.cli import PROGRAM, OnHost, Ran, edit, environment, finish, fleet_of, invoke, look, start, until

NOBODY = "169.254.77.253"
"""On the simulated hosts' network, beyond the addresses that they get."""


@pytest.fixture(scope="module")
def names(_sim_possible: None) -> Iterator[list[str]]:
    """Eight new hosts."""
    names = [f"t{os.getpid()}-many{number}" for number in range(8)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda name: flow.up(name, "b300-4"), names))
    yield names
    for name in names:
        flow.down(name)


@pytest.fixture
def fleet(names: list[str], tmp_path: Path) -> Path:
    """Those eight as a group, and two groups of a part of them."""
    return fleet_of(tmp_path / "fleet", names, {"many": names, "two": names[:2], "four": names[:4]})


@pytest.fixture
def call(fleet: Path, tmp_path: Path) -> Callable[..., Ran]:
    """A command on that fleet."""
    return lambda *words: invoke(*words, B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs")


def test_eight_new_hosts_are_provisioned_in_one_run_and_then_left_alone(
    names: list[str], call: Callable[..., Ran], on_host: OnHost
) -> None:
    first = call("provision", "--host", "many")
    assert first.code == 0, first.document["failures"]
    assert first.ends() == dict.fromkeys(names, 0)
    assert all(host["apply"]["changed"] > 10 for host in first.document["result"]["hosts"].values())
    before = look(on_host, names[3])
    again = call("provision", "--host", "many")
    assert again.ends() == dict.fromkeys(names, 0)
    # No Ansible at all where nothing is to do.
    assert not any("apply" in host for host in again.document["result"]["hosts"].values())
    assert not (Path(again.document["result"]["record"]) / "ansible").exists()
    assert look(on_host, names[3]) == before


def test_hosts_and_groups_mix_and_each_is_done_once(names: list[str], call: Callable[..., Ran]) -> None:
    ran = call("plan", "--hosts", f"{names[1]},two, {names[2]}")
    assert (ran.code, ran.document["hosts"]) == (0, [names[1], names[0], names[2]])


def test_different_ends_are_8_with_a_table_that_names_them_and_the_others_are_done(
    names: list[str], fleet: Path, call: Callable[..., Ran], on_host: OnHost, tmp_path: Path
) -> None:
    healthy, drifted, gone, other = names[:4]
    edit(fleet, gone, lambda spec: spec["connection"].update(address=NOBODY))
    edit(fleet, other, lambda spec: spec["gpus"].update(sms=152))
    on_host(drifted, "sudo apt-mark unhold containerd")
    before = look(on_host, other)

    seen = call("plan", "--host", "four")
    assert seen.code == 8
    assert seen.ends() == {healthy: 0, drifted: 3, gone: 7, other: 4}
    assert {f["code"]: f["where"].split(" ")[0].rstrip(":") for f in seen.document["failures"]} == {
        "ssh.unreachable": gone,
        "plan.gpu.sms": other,
    }

    variables = environment(B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs")
    command = [str(PROGRAM), "provision", "--host", "four"]
    told = subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, timeout=300, check=False)
    assert told.returncode == 8
    table = told.stdout[told.stdout.index("outcome") :]
    lines = {line.split()[0]: line for line in table.splitlines() if line.startswith(f"t{os.getpid()}-many")}
    for name, end in {gone: "unreachable", other: "refused", healthy: "ok", drifted: "ok"}.items():
        assert f" {end} " in lines[name]
    assert "2 of 4 hosts ended well" in table

    assert look(on_host, other) == before
    after = call("plan", "--host", f"{healthy},{drifted}")
    assert after.ends() == {healthy: 0, drifted: 0}, "the other hosts' ends kept this one from being repaired"


def test_one_apply_that_fails_is_11_there_and_0_on_the_other(names: list[str], call: Callable[..., Ran], on_host: OnHost) -> None:
    good, bad = names[:2]
    for name in (good, bad):
        on_host(name, "sudo rm -f /etc/b300kit/cpu.json")
    drop = "[Service]\\nExecStartPre=/bin/false\\n"
    folder = "/run/systemd/system/b300kit-cpu.service.d"
    on_host(bad, f"sudo sh -c 'mkdir -p {folder}; printf \"{drop}\" > {folder}/x.conf; systemctl daemon-reload'")
    ran = call("provision", "--host", "two")
    assert (ran.code, ran.ends()) == (8, {good: 0, bad: 11})
    (failure,) = ran.document["failures"]
    assert failure["code"] == "apply.unit"
    assert failure["where"].startswith(bad)
    assert "b300kit-cpu.service" in failure["found"]
    on_host(bad, f"sudo sh -c 'rm -r {folder}; systemctl daemon-reload'")
    assert call("provision", "--host", "two").ends() == {good: 0, bad: 0}
    assert call("plan", "--host", "two").ends() == {good: 0, bad: 0}


def test_a_second_operator_is_told_who_works_there_and_the_free_host_is_done(
    names: list[str], fleet: Path, call: Callable[..., Ran], on_host: OnHost, tmp_path: Path
) -> None:
    taken, free = names[:2]
    for name in (taken, free):
        on_host(name, "sudo rm -f /etc/b300kit/cpu.json")
    first = start("provision", "--host", taken, B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "first")
    until(lambda: list((tmp_path / "first").glob("2*/hosts/*/stages.jsonl")))
    # Stopped, not raced: it holds the lock for as long as the others need, and has not yet changed anything.
    first.send_signal(signal.SIGSTOP)
    try:
        second = call("provision", "--host", "two")
        looked = call("plan", "--host", "two")
    finally:
        first.send_signal(signal.SIGCONT)
    assert finish(first).code == 0
    assert (second.code, second.ends()) == (8, {taken: 12, free: 0})
    (failure,) = second.document["failures"]
    assert failure["code"] == "host.locked"
    assert failure["where"].startswith(taken)
    (holder,) = (tmp_path / "first").glob("2*")
    assert f"provision {holder.name}" in failure["found"]
    assert looked.ends() == {taken: 3, free: 0}, "whoever only reads needs no lock"
    assert call("plan", "--host", "two").ends() == {taken: 0, free: 0}


def test_alike_ends_are_not_8(names: list[str], fleet: Path, call: Callable[..., Ran]) -> None:
    for number, name in enumerate(names[:2]):
        edit(fleet, name, lambda spec, at=f"169.254.77.{253 + number}": spec["connection"].update(address=at))
    ran = call("provision", "--host", "two")
    assert (ran.code, ran.ends()) == (7, dict.fromkeys(names[:2], 7))
    assert ran.codes == ["ssh.unreachable"] * 2
