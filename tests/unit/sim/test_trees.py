"""The simulated processors: numbering as Linux does it, sixteen fast cores at irregular places, a smear without a gap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.sim.hardware import cpu_tree
from kit.sim.hardware import profile as profiles
from kit.sim.hardware.system_tree import hardware_files, trees


def _numbers(text: str) -> list[int]:
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


@given(st.sets(st.integers(0, 300)))
def test_ranges_say_exactly_the_cpus(cpus: set[int]):
    assert _numbers(cpu_tree.ranges(list(cpus))) == sorted(cpus)


@given(st.sets(st.integers(0, 255)))
def test_mask_says_exactly_the_cpus(cpus: set[int]):
    text = cpu_tree.mask(list(cpus), 256)
    assert [len(group) for group in text.split(",")] == [8] * 8
    bits = int(text.replace(",", ""), 16)
    assert {i for i in range(256) if bits >> i & 1} == cpus


@pytest.fixture(scope="module")
def healthy():
    return cpu_tree.cpu_files(profiles.load("b300-4").cpu)


def _fast(files) -> set[int]:
    return {cpu for cpu in range(256) if files[f"cpu{cpu}/cpufreq/cpuinfo_max_freq"] == "4600000"}


def test_sixteen_fast_physical_cores_eight_a_package_with_both_threads(healthy):
    fast = _fast(healthy)
    first_threads = {cpu for cpu in fast if cpu < 128}
    assert len(first_threads) == 16
    assert fast == first_threads | {cpu + 128 for cpu in first_threads}
    packages = [healthy[f"cpu{cpu}/topology/physical_package_id"] for cpu in first_threads]
    assert packages.count("0") == packages.count("1") == 8


def test_fast_cores_are_at_no_regular_distance(healthy):
    fast = sorted(cpu for cpu in _fast(healthy) if cpu < 64)
    assert len({b - a for a, b in itertools.pairwise(fast)}) > 3


def test_topology_is_consistent(healthy):
    for cpu in range(256):
        siblings = _numbers(healthy[f"cpu{cpu}/topology/thread_siblings_list"])
        assert cpu in siblings
        assert len(siblings) == 2
        mates = _numbers(healthy[f"cpu{cpu}/topology/package_cpus_list"])
        assert len(mates) == 128
        assert all(
            healthy[f"cpu{m}/topology/physical_package_id"] == healthy[f"cpu{cpu}/topology/physical_package_id"] for m in mates
        )
    assert healthy["online"] == "0-255"


def test_pct_off_has_no_faster_core():
    files = cpu_tree.cpu_files(profiles.load("pct-off").cpu)
    assert {files[f"cpu{cpu}/cpufreq/cpuinfo_max_freq"] for cpu in range(256)} == {"2300000"}


def test_a_smear_has_no_gap_to_split_at():
    files = cpu_tree.cpu_files(profiles.load("ambiguous-cores").cpu)
    speeds = sorted({int(files[f"cpu{cpu}/cpufreq/cpuinfo_max_freq"]) for cpu in range(128)})
    assert speeds[0] == 2300000
    assert speeds[-1] == 4600000
    assert max(b - a for a, b in itertools.pairwise(speeds)) < 20000


def test_nodes_hold_every_cpu_once():
    files = cpu_tree.node_files(profiles.load("b300-4").cpu, 1 << 20)
    assert sorted(_numbers(files["node0/cpulist"]) + _numbers(files["node1/cpulist"])) == list(range(256))


def test_gpu_affinity_of_the_driver_is_the_nodes_cpus():
    healthy = profiles.load("b300-4")
    nodes = cpu_tree.node_files(healthy.cpu, 1 << 20)
    for gpu in healthy.gpus:
        assert gpu.cpus == nodes[f"node{gpu.numa_node}/cpulist"]


def test_interrupts_start_out_on_serving_cores_too():
    loaded = profiles.load("b300-4")
    files = trees(loaded, 1 << 20)
    at = {int(text) for path, text in files.items() if path.startswith("proc/irq/") and path.endswith("/effective_affinity_list")}
    assert at & _fast(cpu_tree.cpu_files(loaded.cpu))


def test_files_stay_inside_their_folder_and_end_with_a_newline():
    for path, text in hardware_files(profiles.load("b300-4"), 1 << 20).items():
        assert not path.startswith("/")
        assert ".." not in path.split("/")
        assert text == "" or text.endswith("\n")
