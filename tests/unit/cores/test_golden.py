"""Golden hosts: facts in, core decision and seats out."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.spec.model import Cpus, HostSpec
from tests.hosts import build

SPEC = Cpus.model_validate({"packages": 2, "physical_cores": 128, "fast_cores": {"count": 16, "mhz": 4600, "slow_mhz": 2300}})


def spec(**fast: Any) -> Cpus:
    return SPEC.model_copy(update={"fast_cores": SPEC.fast_cores.model_copy(update=fast)})


def test_the_seeds_host_comes_out_as_written_down() -> None:
    folder = build.HERE / "seed-b300"
    declared = HostSpec.model_validate(yaml.safe_load((folder / "spec.yml").read_text()))
    facts = build.case("seed-b300")
    decision = decide(declared.cpu, facts.cpu)
    seats = assign(declared.cpu, decision, facts)
    found = {"decision": decision.model_dump(mode="json"), "assignment": seats.model_dump(mode="json")}
    assert found == json.loads((folder / "cores.json").read_text())


@pytest.mark.parametrize(
    ("case", "refused", "can_enable_pct"),
    [
        ("flat-pct-available", "all cores are alike while Priority Core Turbo is off; it can be switched on", True),
        ("flat-no-pct", "all cores are alike, and there is no Priority Core Turbo known to switch on", False),
        ("gb300", "all cores are alike, and there is no Priority Core Turbo known to switch on", False),
        ("ambiguous", "the cores' speeds are ambiguous", False),
        ("amd-prefcore", "the cores' speeds are ambiguous", False),
        (
            "everything-unknown",
            "the physical cores are not verified (siblings of CPU 0: permission denied)",
            False,
        ),
    ],
)
def test_hosts_without_a_decision(case: str, refused: str, can_enable_pct: bool) -> None:
    decision = decide(SPEC, build.case(case).cpu)
    assert (decision.refused, decision.can_enable_pct, decision.fast_cores) == (refused, can_enable_pct, ())
    for source in decision.sources:
        assert source.text in decision.reason


def test_grace_is_right_when_it_is_declared_to_have_no_split() -> None:
    facts = build.case("gb300")
    declared = spec(count=144, mhz=3447, slow_mhz=None)
    decision = decide(declared, facts.cpu)
    assert decision.refused is None and decision.evidence == ("hint",)
    seats = assign(declared, decision, facts)
    assert [seat.node for seat in seats.schedulers] == [0, 0, 1, 1]
    assert seats.os_cpus == (0, 72)
    assert (
        decide(spec(count=144, mhz=4600), facts.cpu).refused == "hint has the fast cores at 3447 MHz where 4600 MHz are declared"
    )
    assert decide(spec(count=128, mhz=4600, slow_mhz=None), build.case("seed-b300").cpu).refused is not None


def test_a_host_without_gpus_gets_no_scheduler_seats() -> None:
    facts = build.case("no-gpu-stack")
    seats = assign(SPEC, decide(SPEC, facts.cpu), facts)
    assert seats.schedulers == ()
    assert "no NVIDIA driver" in seats.reason
