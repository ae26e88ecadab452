"""Floors that an operator trusts a rented node by. Declared absent is said, never passed over in silence."""

from __future__ import annotations

from typing import Literal

from kit.facts.model import Facts
from kit.facts.unknown import Unknown
from kit.plan.model import Step
from kit.plan.steps import keep, need
from kit.spec.model import HostSpec, Lock

MEASURE = "measure it (nccl-tests, nvbandwidth, dcgmi diag) with no engine running, or declare it `absent`"


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Bandwidths, HBM, the clock."""
    want = spec.burn_in
    return [
        _floor(
            "burn_in.nccl_all_reduce",
            "NCCL all-reduce bus bandwidth in GB/s",
            want.nccl_all_reduce_gbps,
            facts.burn_in.nccl_all_reduce_gbps,
        ),
        _floor("burn_in.nvlink", "NVLink bandwidth in GB/s", want.nvlink_gbps, facts.burn_in.nvlink_gbps),
        keep("burn_in.hbm", "the HBM check is declared absent: not verified", expected="absent", found="not judged")
        if want.hbm == "absent"
        else need("burn_in.hbm", "HBM check", facts.burn_in.hbm_ok, bool, expected="passed", next=MEASURE),
        need(
            "host.clock",
            "clock synchronisation",
            facts.host.clock_synchronized,
            bool,
            expected="synchronized",
            next="start a time service (`timedatectl set-ntp true`, or chrony): logs and certificates of a node off time mislead",
        )
        if want.clock_synchronized
        else keep("host.clock", "clock synchronisation is not declared", found="not judged"),
    ]


def _floor(id: str, what: str, floor: float | Literal["absent"], fact: float | Unknown) -> Step:
    if floor == "absent":
        return keep(id, f"{what} is declared absent: not verified", expected="absent", found="not judged")
    # NaN fails: only a comparison that holds is a pass.
    return need(id, what, fact, lambda v: v >= floor, expected=f"at least {floor:g}", next=MEASURE)
