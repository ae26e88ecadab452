"""Persistence, power limit, locked clocks: lost at each boot, so a boot unit sets and reads them back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from kit.facts.model import Facts, Gpu
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import boot_unit
from kit.plan.model import Step
from kit.plan.steps import change, keep, refuse, silent
from kit.plan.where import GPU_UNIT
from kit.spec.model import HostSpec, Lock

T = TypeVar("T")
ROLE = "gpu"
WATT = 1.0
"""NVML reports milliwatts; a board may round the limit it was given."""


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """The boot unit, then each setting as the GPUs have it now."""
    want = spec.gpus
    settings = {
        "count": want.count,
        "persistence": want.persistence,
        "power_limit_w": want.power_limit_w,
        "sm_clock_mhz": want.sm_clock_mhz,
    }
    stack = facts.gpu
    gpus = stack.gpus if is_known(stack) else stack
    return [
        *boot_unit.steps(
            ROLE,
            settings,
            facts,
            sets="persistence, power limit and SM clock of the GPUs",
            after="nvidia-persistenced.service nvidia-fabricmanager.service",
            disruptive=True,
        ),
        _set(
            "gpu.persistence",
            "persistence",
            gpus,
            lambda g: g.persistence,
            lambda v: v == want.persistence,
            str(want.persistence),
        ),
        _power_range(spec, gpus),
        _set(
            "gpu.power_limit",
            "power limit in W",
            gpus,
            lambda g: g.power_limit_w,
            lambda v: abs(v - want.power_limit_w) <= WATT,
            str(want.power_limit_w),
        ),
        _clock_range(spec, gpus),
        _set(
            "gpu.sm_clock",
            "locked SM clock in MHz",
            gpus,
            _locked,
            lambda v: v == f"{want.sm_clock_mhz}-{want.sm_clock_mhz}",
            f"{want.sm_clock_mhz}-{want.sm_clock_mhz}",
            unset=True,
        ),
    ]


def _locked(gpu: Gpu) -> str | Unknown:
    clock = gpu.locked_sm_clock
    return f"{clock.minimum_mhz}-{clock.maximum_mhz}" if is_known(clock) else clock


def _set(
    id: str,
    what: str,
    gpus: tuple[Gpu, ...] | Unknown,
    read: Callable[[Gpu], T | Unknown],
    ok: Callable[[T], bool],
    expected: str,
    unset: bool = False,
) -> Step:
    """Change when a GPU differs. An unread value refuses, except with ``unset``: there is no record until our unit has run."""
    if not is_known(gpus):
        return silent(id, gpus, expected)
    values = {gpu.index: read(gpu) for gpu in gpus}
    unread = {i: v for i, v in values.items() if not is_known(v)}
    found = ", ".join(f"GPU {i}: {show(v)}" for i, v in values.items())
    if unread and not unset:
        return refuse(
            id, f"{what} is not verified ({found})", expected=expected, found=found, next="look at `nvidia-smi -q` on the host"
        )
    if gpus and not unread and all(is_known(v) and ok(v) for v in values.values()):
        return keep(id, f"{what} is as declared on all {len(gpus)} GPUs", expected=expected, found=expected)
    return change(
        id,
        f"{what} differs ({found})",
        ROLE,
        expected=expected,
        found=found,
        disruptive=True,
        arguments={"units_restart": [GPU_UNIT]},
    )


def _power_range(spec: HostSpec, gpus: tuple[Gpu, ...] | Unknown) -> Step:
    want = spec.gpus.power_limit_w

    def allowed(gpu: Gpu) -> str | None:
        low, high = gpu.power_limit_min_w, gpu.power_limit_max_w
        if not is_known(low) or not is_known(high):
            return f"GPU {gpu.index}: {show(low if not is_known(low) else high)}"
        return None if low <= want <= high else f"GPU {gpu.index}: {low:g}-{high:g} W"

    return _range("gpu.power_range", "power limit", f"{want} W", gpus, allowed, "gpus.power_limit_w")


def _clock_range(spec: HostSpec, gpus: tuple[Gpu, ...] | Unknown) -> Step:
    want = spec.gpus.sm_clock_mhz

    def allowed(gpu: Gpu) -> str | None:
        high = gpu.max_sm_clock_mhz
        if not is_known(high):
            return f"GPU {gpu.index}: {show(high)}"
        return None if want <= high else f"GPU {gpu.index}: at most {high} MHz"

    return _range("gpu.clock_range", "SM clock", f"{want} MHz", gpus, allowed, "gpus.sm_clock_mhz")


def _range(
    id: str, what: str, wanted: str, gpus: tuple[Gpu, ...] | Unknown, allowed: Callable[[Gpu], str | None], key: str
) -> Step:
    if not is_known(gpus):
        return silent(id, gpus, wanted)
    bad = [text for text in map(allowed, gpus) if text]
    if bad:
        found = "; ".join(bad)
        return refuse(
            id, f"the declared {what} of {wanted} is not allowed ({found})", expected=wanted, found=found, next=f"correct {key}"
        )
    return keep(id, f"the declared {what} is within what every GPU allows", expected=wanted, found="within range")
