"""What a burn-in says, from what was measured: a fault is a fault, and what was not measured passes nothing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from kit.facts.burn_in import judged, slowest_link, with_burn_in
from kit.facts.burn_in_model import MeasuredBurnIn
from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known
from tests.hosts import build


def figure(gbps: float) -> dict[str, Any]:
    return {"gbps": gbps, "lowest_gbps": gbps - 1, "highest_gbps": gbps + 1, "bytes": 1 << 30, "repeats": 10}


def memory(index: int) -> dict[str, Any]:
    check = {
        "total_mib": 275000,
        "tested_mib": 260000,
        "patterns": ["address"],
        "rounds": 16,
        "wrong_words": 0,
        "first_wrong_byte": None,
        "filled": figure(7000),
        "compared": figure(7100),
        "copied": figure(6800),
        "sm_mhz_before": 345,
        "sm_mhz_after": 1920,
        "seconds": 5.0,
    }
    return {"index": index, "check": check, "ecc_before": 0, "ecc_after": 0}


def link(one: int, other: int, there: float = 780.0, back: float = 781.0) -> dict[str, Any]:
    return {
        "gpus": [one, other],
        "peer_access": True,
        "there": figure(there),
        "back": figure(back),
        "both": figure(1500),
        "wrong_words": 0,
        "sm_mhz_before": [345, 345],
        "sm_mhz_after": [1920, 1920],
    }


def facts() -> Facts:
    return build.facts()


def measured(gpus: int = 4, **changes: Any) -> dict[str, Any]:
    """A healthy burn-in of the healthy host."""
    now = facts()
    assert is_known(now.gpu) and is_known(now.gpu.gpus)
    assert len(now.gpu.gpus) == 4
    return {
        "boot_id": now.host.boot_id,
        "driver_version": now.gpu.driver_version,
        "uuids": [gpu.uuid for gpu in now.gpu.gpus[:gpus]],
        "measured_at": "2026-11-30T02:00:00Z",
        "seconds": 40.0,
        "memory": [memory(n) for n in range(gpus)],
        "links": [link(a, b) for a in range(gpus) for b in range(a + 1, gpus)],
        "all_reduce": {
            "library": "libnccl.so.2",
            "version": "2.28.3",
            "gpus": gpus,
            "element": "float32",
            "bus": figure(650),
            "wrong_words": 0,
            "settings": {},
            "sm_mhz_before": [345] * gpus,
            "sm_mhz_after": [1920] * gpus,
        },
        **changes,
    }


def said(document: dict[str, Any]) -> list[Any]:
    """(all-reduce, links, HBM): the value, or the reason."""
    found = judged(MeasuredBurnIn.model_validate(document))
    values = (found.nccl_all_reduce_gbps, found.nvlink_gbps, found.hbm_ok)
    return [value if is_known(value) else value.unknown for value in values]


def test_a_healthy_burn_in() -> None:
    assert said(measured()) == [650.0, 780.0, True]


def test_the_slowest_way_of_the_slowest_pair_counts() -> None:
    document = measured()
    document["links"][4] = link(1, 3, 780, 48)
    assert said(document)[1] == 48.0
    assert slowest_link(MeasuredBurnIn.model_validate(document)) == "GPUs 1 and 3"


def _set(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    document = deepcopy(document)
    *parts, last = path.split(".")
    at: Any = document
    for part in parts:
        at = at[int(part) if part.isdigit() else part]
    at[int(last) if last.isdigit() else last] = value
    return document


UNKNOWN = {"unknown": "because"}


@pytest.mark.parametrize(
    ("path", "value", "which", "answer"),
    [
        ("memory.2.check.wrong_words", 1, 2, False),
        ("memory.1.ecc_after", 1, 2, False),
        ("memory.1.ecc_after", UNKNOWN, 2, "GPU 1: ECC errors after it: because"),
        ("memory.1.ecc_before", UNKNOWN, 2, "GPU 1: ECC errors before it: because"),
        ("memory.3.check", UNKNOWN, 2, "GPU 3: because"),
        ("memory.0.check.tested_mib", 130000, 2, "GPU 0: only 130000 of 275000 MiB could be tested"),
        ("memory", UNKNOWN, 2, "because"),
        ("links", UNKNOWN, 1, "because"),
        ("links.3.back", UNKNOWN, 1, "because"),
        ("links.3.wrong_words", 7, 1, "GPUs 1 and 2: 7 words arrived wrong"),
        ("all_reduce", {"unknown": "libnccl.so.2 not on the host: no"}, 0, "libnccl.so.2 not on the host: no"),
        ("all_reduce.bus", UNKNOWN, 0, "because"),
        ("all_reduce.wrong_words", 5, 0, "the sum is wrong in 5 words"),
        ("all_reduce.gpus", 3, 0, "measured over 3 of 4 GPUs"),
    ],
)
def test_each_fault_and_each_doubt_shows_in_its_own_fact_alone(path: str, value: Any, which: int, answer: object) -> None:
    healthy = said(measured())
    found = said(_set(measured(), path, value))
    assert found[which] == answer
    assert found[:which] + found[which + 1 :] == healthy[:which] + healthy[which + 1 :]


def test_a_fault_beside_a_doubt_is_still_a_fault() -> None:
    document = _set(_set(measured(), "memory.0.check", UNKNOWN), "memory.1.check.wrong_words", 3)
    assert said(document)[2] is False


@pytest.mark.parametrize("part", ["memory", "links"])
def test_a_part_that_is_missing_passes_nothing(part: str) -> None:
    document = measured()
    document[part] = document[part][:-1]
    assert isinstance(said(document)[2 if part == "memory" else 1], str)


def test_nan_is_no_figure() -> None:
    with pytest.raises(ValueError, match="finite"):
        MeasuredBurnIn.model_validate(_set(measured(), "all_reduce.bus.gbps", float("nan")))


def test_one_gpu_has_no_links() -> None:
    assert said(measured(1))[1] == "one GPU: no pair"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"boot_id": "another"}, "not measured in this boot"),
        ({"driver_version": "1.2"}, "measured with driver 1.2, now it is"),
        ({"driver_version": UNKNOWN}, "measured with driver not verified"),
        ({"uuids": ["GPU-other"] * 4}, "measured on other GPUs"),
        ({"uuids": [UNKNOWN] * 4}, "measured on other GPUs"),
        (None, "not measured in this boot"),
    ],
)
def test_a_burn_in_of_something_else_is_none(changes: dict[str, Any] | None, reason: str) -> None:
    run = None if changes is None else MeasuredBurnIn.model_validate(measured(**changes))
    found = with_burn_in(facts(), run).burn_in
    for value in (found.nccl_all_reduce_gbps, found.nvlink_gbps, found.hbm_ok, found.measured):
        assert isinstance(value, Unknown)
        assert value.unknown.startswith(reason)


def test_a_burn_in_of_this_boot_driver_and_gpus_is_taken() -> None:
    found = with_burn_in(facts(), MeasuredBurnIn.model_validate(measured())).burn_in
    assert (found.nvlink_gbps, found.hbm_ok) == (780.0, True)
    assert is_known(found.measured)


def test_without_a_gpu_stack_that_is_the_reason() -> None:
    bare = build.facts(gpu={"unknown": "no NVIDIA driver or library on this host"})
    found = with_burn_in(bare, MeasuredBurnIn.model_validate(measured())).burn_in
    assert isinstance(found.hbm_ok, Unknown)
    assert found.hbm_ok.unknown == "no NVIDIA driver or library on this host"


def measured_on(case: str) -> MeasuredBurnIn:
    return MeasuredBurnIn.model_validate_json((build.HERE / case / "burn_in.json").read_text())


def test_one_h200_as_it_was_measured() -> None:
    """A real GPU of 2026-11-30: HBM sound, and of links and NCCL the reason why there is no figure."""
    now = with_burn_in(build.case("h200-one"), measured_on("h200-one")).burn_in
    reasons = [value.unknown for value in (now.nccl_all_reduce_gbps, now.nvlink_gbps) if isinstance(value, Unknown)]
    assert reasons == ["1 GPU: nothing to reduce over", "1 GPU: no pair"]
    assert now.hbm_ok is True


def test_a_pair_of_h200_as_it_was_measured() -> None:
    """Two real GPUs of 2026-11-30 with 18 links each, 450 GB/s one way by their data sheet; NCCL 2.28.3 without NVLS."""
    now = with_burn_in(build.case("h200-pair"), measured_on("h200-pair")).burn_in
    assert (now.nccl_all_reduce_gbps, now.nvlink_gbps, now.hbm_ok) == (322.84, 394.9, True)
