"""The decision's rules, one by one, and over many hosts."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.cores.decide import decide
from kit.cores.model import Answer
from kit.cores.split import DOMINANCE, FLAT, GAP, split
from kit.facts.model import Cpu, MeasuredCore, MeasuredCores
from kit.facts.unknown import Unknown
from kit.spec.model import Cpus
from tests.hosts import build

CORES = 8
PCT_OFF = "all cores are alike while Priority Core Turbo is off; it can be switched on"
LACKING: Unknown = Unknown(unknown="no such file")


def cpu(fast: set[int], **changes: Any) -> Cpu:
    """Eight cores of two threads; ``fast`` ones claim 4600 MHz."""
    shape = {"packages": 1, "cores_per_package": CORES, "threads": 2, "fast": [sorted(fast)], "max_khz": [2300000, 4600000]}
    extra = {"highest_perf": None, "base_khz": None} | {
        k: changes.pop(k) for k in list(changes) if k in ("max_khz", "highest_perf")
    }
    host = build.document({"cpus": {**shape, **extra}}, None, {})
    host["cpu"]["priority"] = {name: {"unknown": "no tool"} for name in host["cpu"]["priority"]} | {"tool": False}
    return Cpu.model_validate(host["cpu"]).model_copy(update=changes)


def declared(count: int = 2, **fast: Any) -> Cpus:
    return Cpus.model_validate(
        {"packages": 1, "physical_cores": CORES, "fast_cores": {"count": count, "mhz": 4600, "slow_mhz": 2300, **fast}}
    )


def pct(cores: set[int], enabled: bool = True, supported: bool = True) -> dict[str, Any]:
    values = {
        "tool": True,
        "supported": supported,
        "enabled": enabled,
        "priority_cpus": tuple(sorted(c + t for c in cores for t in (0, CORES))),
        "bucket_cores": 4,
        "bucket_mhz": 4600,
    }
    return {"priority": cpu(set()).priority.model_copy(update=values)}


def speeds(loaded: list[float], unit: str = "mhz") -> dict[str, Any]:
    cores = tuple(MeasuredCore(core_cpu=n, alone_mhz=4600.0, loaded_mhz=v) for n, v in enumerate(loaded))
    return {"measured": MeasuredCores(boot_id="b", unit=unit, cores=cores)}


def loaded(fast: set[int], slow_mhz: float = 2300, fast_mhz: float = 4600) -> dict[str, Any]:
    return speeds([fast_mhz if n in fast else slow_mhz for n in range(CORES)])


def test_hints_decide_when_a_hint_is_enough() -> None:
    found = decide(declared(), cpu({1, 5}))
    assert (found.fast_cores, found.evidence, found.refused) == ((1, 5), ("hint",), None)


def test_a_hint_is_not_enough_when_measured_is_asked() -> None:
    found = decide(declared(evidence="measured"), cpu({1, 5}))
    assert found.refused == "the spec asks for measured evidence, and the cores were not measured in this boot"
    assert decide(declared(evidence="measured"), cpu({1, 5}, **loaded({1, 5}))).fast_cores == (1, 5)


def test_measured_speeds_find_what_flat_hints_hide() -> None:
    found = decide(declared(), cpu(set(), max_khz=4600000, **loaded({2, 3})))
    assert (found.fast_cores, found.evidence) == ((2, 3), ("measured",))


def test_speed_select_decides_over_flat_and_over_smeared_hints() -> None:
    smear = [4100000, 4200000, 4300000, 4400000, 4500000, 4600000]
    for max_khz in (4600000, smear):
        found = decide(declared(), cpu(set(), max_khz=max_khz, **pct({2, 3})))
        assert (found.fast_cores, found.evidence) == ((2, 3), ("speed_select",))


@pytest.mark.parametrize(
    ("facts", "refused"),
    [
        (cpu({1, 5}, **pct({1, 4})), "the sources contradict each other: hint names [1, 5], speed_select names [1, 4]"),
        (cpu({1, 5}, **loaded({1, 4})), "the sources contradict each other: hint names [1, 5], measured names [1, 4]"),
        (cpu({1, 5}, **loaded(set())), "measured, the cores are all alike"),
        (cpu({1, 5}, **speeds([2000 * 1.08**n for n in range(CORES)])), "measured, the cores are a smear without a clear gap"),
        (cpu({1, 5, 6}), "3 fast cores where 2 are declared"),
        (cpu({1, 5}, max_khz=[2300000, 3900000]), "hint has the fast cores at 3900 MHz where 4600 MHz are declared"),
        (cpu({1, 5}, max_khz=[3000000, 4600000]), "hint has the slow cores at 3000 MHz where 2300 MHz are declared"),
        (cpu(set(), max_khz=None), "nothing says which cores are fast"),
        (cpu({1, 5}, highest_perf=[46, 23]), "the cores' speeds are ambiguous"),
        (cpu({1, 5}, highest_perf=[20, 21, 23, 25]), "the cores' speeds are ambiguous"),
        (
            cpu(set(), max_khz=2300000, **pct(set(), enabled=False)),
            "all cores are alike while Priority Core Turbo is off; it can be switched on",
        ),
        (
            cpu(set(), max_khz=2300000, **pct(set(range(CORES)))),
            "all cores are alike while Priority Core Turbo is off; it can be switched on",
        ),
    ],
)
def test_what_is_refused(facts: Cpu, refused: str) -> None:
    found = decide(declared(), facts)
    assert (found.refused, found.fast_cores) == (refused, ())


def test_clos_0_with_half_a_core_is_ambiguous() -> None:
    facts = cpu({1, 5}, **pct({1, 5}))
    half = facts.priority.model_copy(update={"priority_cpus": (1, 5)})
    sources = {s.name: s.answer for s in decide(declared(), facts.model_copy(update={"priority": half})).sources}
    assert sources["speed_select"] is Answer.AMBIGUOUS


def test_speeds_of_some_cores_only_are_unknown_not_slow() -> None:
    partial = loaded({1, 5})["measured"]
    cores = tuple(c.model_copy(update={"loaded_mhz": LACKING}) if c.core_cpu > 1 else c for c in partial.cores)
    found = decide(declared(), cpu({1, 5}, measured=partial.model_copy(update={"cores": cores})))
    assert found.fast_cores == (1, 5)
    assert "known for 2 of 8 cores" in found.reason


def test_an_offline_cpu_is_no_core() -> None:
    facts = cpu({1, 5})
    off = tuple(
        c.model_copy(update={"online": False, "max_khz": LACKING, "siblings": LACKING}) if c.cpu % CORES == 7 else c
        for c in facts.logical
    )
    assert decide(declared(), facts.model_copy(update={"logical": off})).fast_cores == (1, 5)


def test_relative_speeds_are_not_compared_with_megahertz() -> None:
    found = decide(
        declared(), cpu(set(), max_khz=None, **speeds([2.0 if n in (1, 5) else 1.0 for n in range(CORES)], "relative"))
    )
    assert found.fast_cores == (1, 5)


SETS = st.sets(st.integers(0, CORES - 1), max_size=CORES)


@st.composite
def hosts(draw: st.DrawFn) -> Cpu:
    """Hosts whose sources say arbitrary things."""
    changes: dict[str, Any] = {}
    if draw(st.booleans()):
        changes |= pct(draw(SETS), enabled=draw(st.booleans()), supported=draw(st.booleans()))
    if draw(st.booleans()):
        changes |= speeds(
            draw(st.lists(st.sampled_from([2200.0, 2300.0, 3000.0, 4500.0, 4600.0]), min_size=CORES, max_size=CORES))
        )
    return cpu(draw(SETS), max_khz=draw(st.sampled_from([[2300000, 4600000], 4600000, None])), **changes)


def relabelled(facts: Cpu, order: list[int]) -> Cpu:
    """The same host with its physical cores numbered differently."""

    def move(number: int) -> int:
        return order[number % CORES] + number // CORES * CORES

    def siblings(values: Any) -> Any:
        return tuple(sorted(move(v) for v in values))

    logical = [c.model_copy(update={"cpu": move(c.cpu), "siblings": siblings(c.siblings)}) for c in facts.logical]
    changes: dict[str, Any] = {"logical": tuple(sorted(logical, key=lambda c: c.cpu))}
    if not isinstance(facts.priority.priority_cpus, Unknown):
        changes["priority"] = facts.priority.model_copy(update={"priority_cpus": siblings(facts.priority.priority_cpus)})
    if not isinstance(facts.measured, Unknown):
        cores = tuple(c.model_copy(update={"core_cpu": move(c.core_cpu)}) for c in facts.measured.cores)
        changes["measured"] = facts.measured.model_copy(update={"cores": cores})
    return facts.model_copy(update=changes)


@settings(max_examples=60, deadline=None)
@given(hosts(), st.permutations(range(CORES)), st.sampled_from(["hint", "measured"]), st.integers(1, 4))
def test_numbering_does_not_matter(facts: Cpu, order: list[int], evidence: str, count: int) -> None:
    spec = declared(count, evidence=evidence)
    one, other = decide(spec, facts), decide(spec, relabelled(facts, order))
    assert {order[core] for core in one.fast_cores} == set(other.fast_cores)
    assert (one.refused is None) == (other.refused is None)


@settings(max_examples=60, deadline=None)
@given(hosts(), st.sampled_from(["hint", "measured"]), st.integers(1, 4))
def test_less_evidence_never_names_other_cores(facts: Cpu, evidence: str, count: int) -> None:
    spec = declared(count, evidence=evidence)
    whole = decide(spec, facts)
    if whole.refused is not None:
        return
    no_pct = {"priority": cpu(set()).priority}
    hidden = tuple(c.model_copy(update={"max_khz": LACKING}) for c in facts.logical)
    for less in (no_pct, {"measured": LACKING}, {"logical": hidden}):
        found = decide(spec, facts.model_copy(update=less))
        assert found.fast_cores in ((), whole.fast_cores)


NUMBERS = st.lists(st.floats(1, 1e5), min_size=1, max_size=24)


@given(NUMBERS)
def test_the_rule_as_it_is_stated(numbers: list[float]) -> None:
    found = split(dict(enumerate(numbers)), "")
    low, high = min(numbers), max(numbers)
    if found.answer is Answer.FLAT:
        assert high / low <= FLAT
        return
    assert high / low > FLAT
    if found.answer is Answer.SPLIT:
        fast = [n for core, n in enumerate(numbers) if core in found.fast]
        slow = [n for core, n in enumerate(numbers) if core not in found.fast]
        gap = min(fast) / max(slow)
        assert gap >= GAP
        for side in (fast, slow):
            assert math.log(gap) >= DOMINANCE * math.log(max(side) / min(side)) - 1e-6


@given(st.lists(st.floats(100, 1e4), min_size=1, max_size=24), st.floats(0.01, 100))
def test_the_unit_does_not_matter(numbers: list[float], factor: float) -> None:
    one = split(dict(enumerate(numbers)), "")
    other = split({core: n * factor for core, n in enumerate(numbers)}, "")
    borderline = min(abs(max(numbers) / min(numbers) - FLAT), abs(one.fast_value / one.slow_value - GAP)) < 1e-9
    assert borderline or (one.answer, one.fast) == (other.answer, other.fast)


@pytest.mark.parametrize("bad", [{}, {0: 0.0}, {0: float("nan")}, {0: float("inf")}, {0: -1.0}])
def test_a_number_that_is_none_never_passes(bad: dict[int, float]) -> None:
    with pytest.raises(ValueError, match="above zero"):
        split(bad, "")
