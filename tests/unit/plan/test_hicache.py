"""Host cache sums, in GiB."""

from __future__ import annotations

from typing import Any

import pytest

from kit.plan.model import Action
from tests.unit.plan import world

GIB = 1024 * 1024  # KiB


def step(free_gib: float, memory: dict[str, Any] | None = None, **spec: Any):
    declared = world.declared(**{"memory__hicache": {"size_gib": 10}, "memory__reserve_gib": 10, **spec})
    document = world.fresh_document(declared)
    document["memory"] |= {"available_kib": int(free_gib * GIB), **(memory or {})}
    return world.planned(declared, document)["memory.hicache"]


def test_four_ranks_and_the_reserve_must_be_less_than_what_is_free() -> None:
    assert step(50.1).action is Action.KEEP
    assert step(50.0).action is Action.REFUSE
    assert "50" in step(50.0).reason


def test_ratio_counts_per_rank() -> None:
    ratio = {"ratio": 2, "device_pool_gib": 5}
    assert step(50.1, memory__hicache=ratio).action is Action.KEEP
    assert step(49.9, memory__hicache=ratio).action is Action.REFUSE


def test_a_ratio_without_its_device_pool_refuses() -> None:
    assert step(5000, memory__hicache={"ratio": 2}).action is Action.REFUSE


def test_reserved_huge_pages_that_are_given_back_count_as_free() -> None:
    """10 GiB of 2 MiB pages hide 10 GiB from MemAvailable; declared are none."""
    pages = {"huge_pages_total": 5120, "huge_pages_free": 5120}
    assert step(45, pages).action is Action.KEEP
    assert step(45, pages | {"huge_pages_free": 0}).action is Action.REFUSE


def test_huge_pages_still_to_be_reserved_are_taken_off() -> None:
    assert step(55, memory__huge_pages={"size_kib": 2048, "count": 5120}).action is Action.REFUSE
    assert step(61, memory__huge_pages={"size_kib": 2048, "count": 5120}).action is Action.KEEP


@pytest.mark.parametrize(("limit_gib", "action"), [(49, Action.REFUSE), (51, Action.KEEP)])
def test_a_cgroup_limit_counts_when_it_is_smaller(limit_gib: int, action: Action) -> None:
    found = step(500, {"cgroup_limited": True, "cgroup_limit_kib": limit_gib * GIB})
    assert found.action is action
    assert "cgroup" in found.found


@pytest.mark.parametrize("name", ["available_kib", "huge_pages_total", "cgroup_limited"])
def test_an_unknown_part_of_the_sum_refuses(name: str) -> None:
    assert step(5000, {name: {"unknown": "no such file"}}).action is Action.REFUSE
