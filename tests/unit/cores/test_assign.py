"""Who sits where."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.cores.model import Assignment
from kit.facts.model import Facts
from kit.spec.model import Cpus
from tests.hosts import build


def host(fast: list[list[int]], gpu_nodes: list[int | None]) -> Facts:
    """Two packages of eight cores."""
    shape = {"packages": 2, "cores_per_package": 8, "threads": 2, "fast": fast}
    whole = build.document({"cpus": shape}, None, {})
    whole["cpu"]["measured"] = {"unknown": "not measured"}
    gpus = []
    for index, node in enumerate(gpu_nodes):
        gpu = {**whole["gpu"]["gpus"][0], "index": index, "numa_node": {"unknown": "no file"} if node is None else node}
        gpus.append(gpu)
    whole["gpu"]["gpus"] = gpus
    return Facts.model_validate(whole)


def seats(facts: Facts, count: int, os_cores: int = 2) -> Assignment:
    spec = Cpus.model_validate(
        {"packages": 2, "physical_cores": 16, "os_cores": os_cores, "fast_cores": {"count": count, "mhz": 4600, "slow_mhz": 2300}}
    )
    decision = decide(spec, facts.cpu)
    assert decision.refused is None, decision.refused
    return assign(spec, decision, facts)


def test_each_scheduler_sits_near_its_gpu_with_its_sibling() -> None:
    found = seats(host([[2, 4, 6], [1, 3, 5]], [1, 0, 1, 0]), 6)
    assert [(s.gpu, s.core, s.cpus, s.node, s.near_gpu) for s in found.schedulers] == [
        (0, 9, (9, 25), 1, True),
        (1, 2, (2, 18), 0, True),
        (2, 11, (11, 27), 1, True),
        (3, 4, (4, 20), 0, True),
    ]
    assert found.detokenizer and found.tokenizer
    assert (found.detokenizer.core, found.tokenizer.core) == (6, 13)
    assert found.os_cpus == (0, 8, 16, 24)


def test_a_node_without_fast_cores_is_said_not_failed() -> None:
    found = seats(host([[2, 4, 6, 7], []], [0, 1]), 4)
    assert [(s.core, s.near_gpu) for s in found.schedulers] == [(2, True), (4, False)]
    assert "GPU 1's NUMA node 1 has no fast core left" in found.reason


def test_a_gpu_that_knows_its_node_is_served_before_one_that_does_not() -> None:
    found = seats(host([[2], [3]], [None, 0]), 2)
    assert [(s.core, s.near_gpu) for s in found.schedulers] == [(11, None), (2, True)]
    assert "not verified" in found.schedulers[0].reason


def test_unknown_nodes_are_spread_evenly() -> None:
    found = seats(host([[1, 2], [3, 4]], [None, None, None, None]), 4)
    assert [s.node for s in found.schedulers] == [0, 1, 0, 1]


def test_without_fast_cores_left_the_helpers_sit_on_slow_ones_and_that_is_said() -> None:
    found = seats(host([[2], [3]], [0, 1]), 2)
    assert found.detokenizer and not found.detokenizer.fast
    assert "slow" in found.detokenizer.reason


def test_too_few_fast_cores_seat_no_scheduler() -> None:
    found = seats(host([[2], []], [0, 1]), 1)
    assert found.schedulers == ()
    assert "2 GPUs, 1 fast cores" in found.reason


def test_a_refused_decision_cannot_be_assigned() -> None:
    facts = build.case("ambiguous")
    spec = Cpus.model_validate({"packages": 2, "physical_cores": 128, "fast_cores": {"count": 16, "mhz": 4600}})
    with pytest.raises(ValueError, match="no assignment"):
        assign(spec, decide(spec, facts.cpu), facts)


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.integers(0, 7), min_size=1, max_size=6),
    st.sets(st.integers(0, 7), max_size=6),
    st.lists(st.sampled_from([0, 1, None]), max_size=6),
    st.integers(1, 4),
)
def test_every_cpu_has_one_place(left: set[int], right: set[int], nodes: list[Any], os_cores: int) -> None:
    facts = host([sorted(left), sorted(right)], nodes)
    found = seats(facts, len(left) + len(right), os_cores)
    taken = [s for s in (*found.schedulers, found.detokenizer, found.tokenizer) if s]
    everything = [*found.os_cpus, *found.rest_cpus, *(cpu for seat in taken for cpu in seat.cpus)]
    assert sorted(everything) == list(range(32))
    assert set(found.serving_cpus) == set(range(32)) - set(found.os_cpus)
    fast = set(left) | {core + 8 for core in right}
    assert not {cpu % 16 for cpu in found.os_cpus} & fast
    assert all(seat.core in fast for seat in found.schedulers)
    assert len(found.schedulers) in (0, len(nodes))
