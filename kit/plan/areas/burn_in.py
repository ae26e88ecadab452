"""Floors that an operator trusts a rented node by. Declared absent is said, never passed over in silence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from kit.facts.burn_in import link_faults, memory_faults, slowest_link, sum_faults
from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known
from kit.plan.model import Step
from kit.plan.steps import keep, need, refuse
from kit.spec.model import HostSpec, Lock

MEASURE = "`invoke probe --burn-in` with no engine running, or declare it `absent`"
_MEND = "ask the provider; after mending, `invoke probe --burn-in` again"


@dataclass(frozen=True)
class _Want:
    expected: str
    ok: Callable[[float | bool], bool]


@dataclass(frozen=True)
class _Found:
    fact: float | bool | Unknown
    shown: str
    """With the conditions; used when the fact is known."""
    faults: list[str]


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Bandwidths, HBM, the clock."""
    want, found = spec.burn_in, facts.burn_in
    run = found.measured if is_known(found.measured) else None
    when = f", measured {run.measured_at}" if run else ""  # the moment, not the age: the same facts give the same plan
    slowest = f" between {slowest_link(run)}, the slowest pair" if run else ""
    reduced, linked = _gbps(found.nccl_all_reduce_gbps, when), _gbps(found.nvlink_gbps, slowest + when)
    passed = is_known(found.hbm_ok) and found.hbm_ok
    return [
        _judged(
            "burn_in.nccl_all_reduce",
            "NCCL all-reduce bus bandwidth",
            _floor(want.nccl_all_reduce_gbps),
            _Found(found.nccl_all_reduce_gbps, reduced, sum_faults(run.all_reduce) if run else []),
        ),
        _judged(
            "burn_in.nvlink",
            "NVLink bandwidth",
            _floor(want.nvlink_gbps),
            _Found(found.nvlink_gbps, linked, link_faults(run.links) if run else []),
        ),
        _judged(
            "burn_in.hbm",
            "HBM check",
            _Want("passed", lambda value: value is True) if want.hbm == "required" else None,
            _Found(found.hbm_ok, f"{'passed' if passed else 'failed'}{when}", memory_faults(run.memory) if run else []),
        ),
        _clock(spec, facts),
    ]


def _clock(spec: HostSpec, facts: Facts) -> Step:
    if not spec.burn_in.clock_synchronized:
        return keep("host.clock", "clock synchronisation is not declared", found="not judged")
    return need(
        "host.clock",
        "clock synchronisation",
        facts.host.clock_synchronized,
        bool,
        expected="synchronized",
        next="start a time service (`timedatectl set-ntp true`, or chrony): logs and certificates of a node off time mislead",
    )


def _floor(floor: float | Literal["absent"]) -> _Want | None:
    # NaN fails: only a comparison that holds is a pass.
    return None if floor == "absent" else _Want(f"at least {floor:g} GB/s", lambda value: value >= floor)


def _gbps(fact: float | Unknown, conditions: str) -> str:
    return f"{fact:g} GB/s{conditions}" if is_known(fact) else ""


def _judged(id: str, what: str, want: _Want | None, found: _Found) -> Step:
    """Data that came back wrong refuses whatever is declared: a fault that was seen is not absent."""
    if found.faults:
        shown = "; ".join(found.faults)
        expected = want.expected if want else "right data"
        return refuse(id, f"{what} found wrong data: {shown}", expected=expected, found=shown, next=_MEND)
    if want is None:
        shown = f"{found.shown}, not judged" if is_known(found.fact) else "not judged"
        return keep(id, f"{what} is declared absent: not verified", expected="absent", found=shown)
    if not is_known(found.fact):
        return need(id, what, found.fact, want.ok, expected=want.expected, next=MEASURE)
    return need(id, what, found.fact, want.ok, expected=want.expected, found=found.shown, next=_MEND)
