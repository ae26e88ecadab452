"""Does SGLang's host cache fit? The engine does not size itself once a ratio or size is given, and pins what it is told.

All in GiB. ranks x (ratio x device pool, or size) + reserve must be less than what is free, and than the cgroup's limit.
"""

from __future__ import annotations

from kit.facts.base import KIB_PER_GIB
from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known, show
from kit.plan.model import Step
from kit.plan.steps import keep, need, refuse
from kit.spec.model import HostSpec, Lock


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """RAM as declared, then the sum of pools."""
    total = facts.memory.total_kib
    least = spec.memory.total_gib_min
    return [
        need(
            "memory.total",
            "RAM",
            total,
            lambda kib: kib / KIB_PER_GIB >= least,
            expected=f"at least {least:g} GiB",
            found=f"{total / KIB_PER_GIB:.1f} GiB" if is_known(total) else total,
            next="a DIMM is missing or this is another host: ask the provider, or correct memory.total_gib_min",
        ),
        _pools(spec, facts),
    ]


def pool_gib(spec: HostSpec) -> float | None:
    """Host pool of one rank; None when the spec gives neither a size nor a ratio with its device pool."""
    cache = spec.memory.hicache
    if cache.size_gib is not None:
        return cache.size_gib
    if cache.ratio is None or cache.device_pool_gib is None:
        return None
    return cache.ratio * cache.device_pool_gib


def available_kib(spec: HostSpec, facts: Facts) -> tuple[int, str] | Unknown:
    """What the pools may take once the plan is applied, and how it was reckoned.

    MemAvailable leaves reserved huge pages out: those that the spec gives back are added, those still to be reserved are
    taken off. With an engine running its own pools are in use already, so total RAM is the measure then.
    """
    memory = facts.memory
    active = facts.membership.engine_active
    running = is_known(active) and active
    free = memory.total_kib if running else memory.available_kib
    if not is_known(free):
        return free
    if not is_known(memory.huge_pages_total) or not is_known(memory.huge_page_kib) or not is_known(memory.huge_pages_free):
        return Unknown(unknown="huge pages could not be read")
    declared = spec.memory.huge_pages.count * spec.memory.huge_pages.size_kib
    if running:
        free, words = free - declared, "total RAM without huge pages, as the engine holds its pools now"
    else:
        given_back = memory.huge_pages_total * memory.huge_page_kib - declared
        free += min(given_back, memory.huge_pages_free * memory.huge_page_kib)
        words = "MemAvailable" if not given_back else f"MemAvailable and {given_back / KIB_PER_GIB:+.1f} GiB of huge pages"
    if not is_known(memory.cgroup_limited):
        return memory.cgroup_limited
    if memory.cgroup_limited:
        if not is_known(memory.cgroup_limit_kib):
            return memory.cgroup_limit_kib
        if memory.cgroup_limit_kib < free:
            return memory.cgroup_limit_kib, "the cgroup's memory limit"
    return free, words


def _pools(spec: HostSpec, facts: Facts) -> Step:
    id = "memory.hicache"
    ranks, reserve = spec.gpus.count, spec.memory.reserve_gib
    pool = pool_gib(spec)
    if pool is None:
        return refuse(
            id,
            "the host cache has no size: an explicit ratio needs device_pool_gib",
            expected="size_gib, or ratio and device_pool_gib",
            next="complete memory.hicache in the host's file",
        )
    asked = ranks * pool + reserve
    expected = f"more than {ranks} x {pool:g} + {reserve:g} = {asked:g} GiB"
    there = available_kib(spec, facts)
    if not is_known(there):
        return refuse(
            id, f"free memory is {show(there)}", expected=expected, found=there, next="look at /proc/meminfo and the cgroup"
        )
    gib, words = there[0] / KIB_PER_GIB, there[1]
    found = f"{gib:.1f} GiB ({words})"
    if not asked < gib:
        return refuse(
            id,
            f"{ranks} host pools and the reserve need {asked:g} GiB, there are {found}",
            expected=expected,
            found=found,
            next="lower memory.hicache, give back huge pages, stop what holds memory, or raise the cgroup's limit",
        )
    return keep(
        id, f"{ranks} host pools of {pool:g} GiB and {reserve:g} GiB reserve fit in {found}", expected=expected, found=found
    )
