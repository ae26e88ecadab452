"""The qemu machine proves what a container cannot: cpusets, limits, huge pages, NUMA are the kernel's own here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit import paths, procfs
from kit.errors import ExitCode, KitError
from kit.facts.host.read import numbers as listed_numbers
from kit.plan import render
from kit.plan.areas import cores
from kit.sim import flow, states
from kit.sim.places import Places
from kit.sim.requirements import missing
from tests.sim import applying

pytestmark = pytest.mark.qemu


def numbers(listing: str) -> set[int]:
    """The kernel's list format."""
    return set(listed_numbers(listing))


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


def invoke(*words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and JSON document of the command line."""
    command = [str(Path(sys.executable).parent / "invoke"), *words, "--format", "json"]
    done = subprocess.run(command, cwd=paths.ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def provisioned(machine):
    """The machine after its first provision."""
    code, document = invoke("provision", "--host", machine)
    assert code == 0, document["failures"]
    return machine


def test_a_provisioned_machine_needs_nothing_more(provisioned):
    """Its kernel refuses to move some interrupts, and delivers others late: neither is drift."""
    code, document = invoke("provision", "--host", provisioned)
    assert code == 0, document["failures"]
    host = document["result"]["hosts"][provisioned]
    assert {step["action"] for step in host["steps"]} == {"keep"}
    assert "apply" not in host
    told = next(step["found"] for step in host["steps"] if step["id"] == "cpu.interrupts")
    assert re.search(r"cannot be moved by software: [1-9]\d* interrupts", told)


def test_interrupts_that_can_move_are_set_to_the_systems_cpus(provisioned, on_host):
    record = json.loads(on_host(provisioned, "cat /run/b300kit/cpu.json").stdout)["read_back"]["interrupts"]
    assert record["moved"] > 0
    allowed = numbers(record["cpus"])
    assert 0 < len(allowed) < 8
    lines = on_host(provisioned, "find /proc/irq -name smp_affinity_list -perm /222 -exec grep -H . {} +").stdout.splitlines()
    listed = {line.split("/")[3]: numbers(line.partition(":")[2]) for line in lines}
    astray = {number: cpus for number, cpus in listed.items() if number not in record["refused"] and not cpus <= allowed}
    assert len(listed) > len(record["refused"])
    assert astray == {}


def test_huge_pages_are_on_each_node_and_a_process_gets_them(provisioned, on_host):
    declared = applying.target(provisioned).spec.memory.huge_pages
    assert declared.count > 0
    pool = "hugepages/hugepages-2048kB"
    nodes = on_host(provisioned, f"cat /sys/devices/system/node/node*/{pool}/nr_hugepages").stdout.split()
    assert [int(n) for n in nodes] == [declared.count / 2] * 2
    use = "import mmap; m = mmap.mmap(-1, 4 << 21, flags=0x40022); m[:] = bytes(4 << 21); print(open('/proc/meminfo').read())"
    free = re.search(r"HugePages_Free: +(\d+)", on_host(provisioned, f'python3 -c "{use}"').stdout)
    assert free is not None
    assert int(free[1]) == declared.count - 4


def test_the_daemon_has_its_limits_and_a_cpuset_keeps_an_engine_on_its_cpus(provisioned, on_host):
    spec = applying.target(provisioned).spec.memory
    limits = on_host(provisioned, "sudo cat /proc/$(systemctl show -p MainPID --value docker)/limits").stdout
    locked = next(line.split() for line in limits.splitlines() if line.startswith("Max locked memory"))
    assert locked[3] == ("unlimited" if spec.memlock_kib == "unlimited" else str(spec.memlock_kib * 1024))
    it, facts, _ = applying.look(provisioned)
    serving = cores.look(it.spec, facts).assignment.serving_cpus
    assert 0 < len(serving) < 8
    unit = f"systemd-run -q --wait -P -p AllowedCPUs={render.cpu_list(serving)}"
    found = on_host(
        provisioned, f"sudo {unit} sh -c 'taskset -c -p 0 >/dev/null; grep Cpus_allowed_list /proc/self/status'"
    ).stdout
    assert numbers(found.split()[1]) == set(serving)


def test_verify_agrees_from_inside_and_outside(provisioned):
    code, document = invoke("verify", "--host", provisioned)
    assert code == 0, document["failures"]


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
    assert procfs.started(state.supervisor_pid) is None
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and (process / "cmdline").exists():
            assert str(folder).encode() not in (process / "cmdline").read_bytes()
    assert not folder.exists()
