"""The qemu machine proves what a container cannot: cpusets, limits, huge pages, NUMA are the kernel's own here."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.sim import flow, states
from kit.sim.places import Places
from kit.sim.requirements import missing

pytestmark = pytest.mark.qemu


@pytest.fixture(scope="module")
def machine(_sim_possible):
    wrong = [f.text() for f in missing("qemu")]
    if wrong:
        pytest.fail("; ".join(wrong) + " (-m 'not qemu' leaves these tests out)", pytrace=False)
    name = f"t{os.getpid()}-qemu"
    flow.up(name, "b300-4", runtime="qemu")
    yield name
    flow.down(name)


def test_a_cpuset_is_enforced(machine, on_host):
    found = on_host(machine, "sudo systemd-run -q --wait -P -p AllowedCPUs=2-3 grep Cpus_allowed_list /proc/self/status").stdout
    assert found.split() == ["Cpus_allowed_list:", "2-3"]


def test_limits_are_what_a_unit_asks_for(machine, on_host):
    found = on_host(
        machine,
        "sudo systemd-run -q --wait -P -p LimitMEMLOCK=infinity -p LimitNOFILE=1048576 "
        "grep -E 'locked|open files' /proc/self/limits",
    ).stdout
    assert found.count("unlimited") == 2
    assert found.count("1048576") == 2


def test_huge_pages_are_reserved_on_both_nodes(machine, on_host):
    on_host(machine, "echo 16 | sudo tee /proc/sys/vm/nr_hugepages")
    assert on_host(machine, "grep HugePages_Total /proc/meminfo").stdout.split() == ["HugePages_Total:", "16"]
    nodes = on_host(machine, "cat /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages").stdout.split()
    assert sum(int(n) for n in nodes) == 16
    assert len(nodes) == 2


def test_the_simulated_hardware_is_there_too(machine, on_host):
    assert on_host(machine, "nvidia-smi | wc -l").stdout == "4\n"
    assert on_host(machine, "grep -l 4600000 /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq | wc -l").stdout == "4\n"
    assert on_host(machine, "hostname").stdout == f"{machine}\n"
    assert on_host(machine, "cat /sys/fs/cgroup/cgroup.controllers").stdout.split()[0] == "cpuset"


def test_two_machines_have_keys_of_their_own(machine):
    places = Places.here()
    state = states.read(places, machine)
    template = next(places.layers / name for name in state.layers if name.startswith("qemu-"))
    assert state.host_key != (template / "host_key.pub").read_text().strip()


def test_a_memory_limit_is_refused_here(machine):
    with pytest.raises(KitError) as caught:
        flow.up(f"{machine}-x", "low-ram", runtime="qemu")
    assert caught.value.exit_code is ExitCode.USAGE
    assert not Places.here().host(f"{machine}-x").folder.exists()


def test_down_ends_the_machine(machine):
    state = states.read(Places.here(), machine)
    folder = Places.here().host(machine).folder
    flow.down(machine)
    assert states.start_ticks(state.supervisor_pid) is None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and (process / "cmdline").exists():
            assert str(folder).encode() not in (process / "cmdline").read_bytes()
    assert not folder.exists()
