"""The plan: a pure function of what is declared, what is locked, and what was found."""

from __future__ import annotations

from kit.facts.model import Facts
from kit.plan.areas import (
    burn_in,
    container_engine,
    cpu,
    driver,
    firewall,
    gpu_settings,
    gpus,
    guard,
    hicache,
    memory,
    node,
    packages,
    reboot,
)
from kit.plan.model import Plan, Step
from kit.spec.model import HostSpec, Lock

AREAS = (driver, gpus, burn_in, hicache, node, memory, cpu, gpu_settings, container_engine, firewall, packages)
"""In the order in which the changes are carried out; holds come last, so that what this plan installs is held too."""


def make_plan(spec: HostSpec, lock: Lock, facts: Facts) -> Plan:
    """Every decision about one host. Refusals do not hide one another: all are there."""
    steps: list[Step] = []
    for area in AREAS:
        steps += area.steps(spec, lock, facts)
    steps = driver.after_reboot(spec, lock, facts, steps)
    steps += reboot.steps(spec, lock, facts, steps)
    return Plan(host=spec.name, boot_id=facts.host.boot_id, steps=tuple(guard.guarded(spec.name, facts, steps)))
