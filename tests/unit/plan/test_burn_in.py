"""The burn-in in the plan: floors against figures with their moment, declared absent said, damage never passed over."""

from __future__ import annotations

from typing import Any

import pytest

from kit.facts.burn_in import with_burn_in
from kit.facts.burn_in_model import MeasuredBurnIn
from kit.facts.model import Facts, parse
from kit.plan.areas import burn_in
from kit.plan.model import Action, Step
from tests.unit.facts.test_burn_in import UNKNOWN, _set, measured
from tests.unit.plan import world

FLOORS = {"burn_in__nccl_all_reduce_gbps": 600, "burn_in__nvlink_gbps": 700, "burn_in__hbm": "required"}
ALL = ("burn_in.nccl_all_reduce", "burn_in.nvlink", "burn_in.hbm")


def steps(document: dict[str, Any] | None, **declared: Any) -> dict[str, Step]:
    """Of a host with this burn-in, or none."""
    run = None if document is None else MeasuredBurnIn.model_validate(document)
    facts: Facts = with_burn_in(parse(world.build.document({}, None, {})), run)
    return {step.id: step for step in burn_in.steps(world.declared(**declared), world.LOCK, facts)}


def test_figures_above_their_floors_are_kept_and_say_when_they_were_measured() -> None:
    found = steps(measured(), **FLOORS)
    assert [found[id].action for id in ALL] == [Action.KEEP] * 3
    assert found["burn_in.nccl_all_reduce"].found == "650 GB/s, measured 2026-11-30T02:00:00Z"
    assert found["burn_in.nvlink"].found.startswith("780 GB/s between GPUs 0 and 1, the slowest pair, measured 2026")
    assert found["burn_in.hbm"].found == "passed, measured 2026-11-30T02:00:00Z"


@pytest.mark.parametrize(
    ("path", "value", "id", "words"),
    [
        ("links.5.back.gbps", 48.0, "burn_in.nvlink", "48 GB/s between GPUs 2 and 3, the slowest pair"),
        ("all_reduce.bus.gbps", 599.0, "burn_in.nccl_all_reduce", "NCCL all-reduce bus bandwidth is 599 GB/s"),
        ("all_reduce", {"unknown": "libnccl.so.2 not on the host"}, "burn_in.nccl_all_reduce", "could not be read"),
        ("memory.2.check", UNKNOWN, "burn_in.hbm", "not verified"),
        ("memory.2.ecc_after", 2, "burn_in.hbm", "GPU 2: 2 uncorrected ECC errors during the check"),
    ],
)
def test_one_that_falls_short_refuses_alone_and_with_its_reason(path: str, value: Any, id: str, words: str) -> None:
    found = steps(_set(measured(), path, value), **FLOORS)
    assert [i for i in ALL if found[i].action is Action.REFUSE] == [id]
    assert words in found[id].reason
    assert "probe --burn-in" in found[id].next


def test_without_a_burn_in_every_floor_is_not_verified_and_the_command_is_named() -> None:
    found = steps(None, **FLOORS)
    assert [found[id].action for id in ALL] == [Action.REFUSE] * 3
    assert all("not measured in this boot" in found[id].found and "probe --burn-in" in found[id].next for id in ALL)


def test_declared_absent_is_said_measured_or_not() -> None:
    for document, shown in ((None, "not judged"), (_set(measured(), "links.0.there.gbps", 1.0), "1 GB/s between")):
        found = steps(document)
        assert [found[id].action for id in ALL] == [Action.KEEP] * 3
        assert all("declared absent: not verified" in found[id].reason for id in ALL)
        assert found["burn_in.nvlink"].found.startswith(shown)


@pytest.mark.parametrize(
    ("path", "value", "id"),
    [
        ("memory.2.check.wrong_words", 1, "burn_in.hbm"),
        ("links.0.wrong_words", 1, "burn_in.nvlink"),
        ("all_reduce.wrong_words", 1, "burn_in.nccl_all_reduce"),
    ],
)
def test_damage_that_was_seen_is_refused_though_declared_absent(path: str, value: int, id: str) -> None:
    found = steps(_set(measured(), path, value))
    assert [i for i in ALL if found[i].action is Action.REFUSE] == [id]
    assert "found wrong data" in found[id].reason
