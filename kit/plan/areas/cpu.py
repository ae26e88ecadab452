"""Processors: as declared, which cores are fast, Priority Core Turbo, governor, C-states, interrupts."""

from __future__ import annotations

from typing import Any

from kit.facts.model import Facts
from kit.facts.unknown import is_known, show
from kit.plan import boot_unit, render
from kit.plan.areas import cores
from kit.plan.model import Action, Step
from kit.plan.steps import blocked, change, file_step, keep, need, refuse
from kit.plan.where import CPU_UNIT, IRQBALANCE_DROP_IN, IRQBALANCE_ENV, IRQBALANCE_UNIT
from kit.spec.model import HostSpec, Lock

ROLE = "cpu"
RESTART = {"units_restart": [CPU_UNIT]}
WRONG_HOST = "this host is not the one that was declared: ask the provider, or correct cpu in the host's file"


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Refusals on the hardware, then files and the boot unit, then each setting as it is now."""
    outlook = cores.look(spec, facts)
    irqbalance = _irqbalance_files(spec, facts, outlook)
    return [
        need(
            "cpu.sockets",
            "number of sockets",
            facts.cpu.packages,
            lambda v: v == spec.cpu.packages,
            expected=spec.cpu.packages,
            next=WRONG_HOST,
        ),
        need(
            "cpu.cores",
            "number of physical cores",
            facts.cpu.physical_cores,
            lambda v: v == spec.cpu.physical_cores,
            expected=spec.cpu.physical_cores,
            next=f"{WRONG_HOST}; or cores are switched off in the BIOS",
        ),
        outlook.fast_cores,
        *boot_unit.steps(
            ROLE,
            _settings(spec, outlook),
            facts,
            sets="priority cores, governor, C-states and interrupts",
            after="systemd-modules-load.service irqbalance.service",
        ),
        *irqbalance,
        outlook.turbo,
        _governor(spec, facts),
        _cstates(spec, facts, outlook),
        _interrupts(spec, facts, outlook),
        _irqbalance(facts, irqbalance),
    ]


def _moves_interrupts(spec: HostSpec, outlook: cores.Outlook) -> bool:
    """Without a core decision nothing is written about cores: it is refused anyway."""
    return spec.cpu.interrupts == "off_serving_cores" and bool(outlook.os_cpus)


def _settings(spec: HostSpec, outlook: cores.Outlook) -> dict[str, Any]:
    latency, system = spec.cpu.max_cstate_latency_us, outlook.os_cpus
    where = {"cpus": render.cpu_list(system), "mask": render.cpu_mask(system)}
    return {
        "governor": spec.cpu.governor,
        "cstates": None if latency is None else {"max_latency_us": latency, "cpus": render.cpu_list(outlook.fast_cpus)},
        "interrupts": where if _moves_interrupts(spec, outlook) else None,
        "priority": {"cpus": render.cpu_list(outlook.priority_cpus)} if outlook.priority_cpus else None,
    }


def _irqbalance_files(spec: HostSpec, facts: Facts, outlook: cores.Outlook) -> list[Step]:
    system = set(outlook.os_cpus)
    banned = [c.cpu for c in facts.cpu.logical if c.cpu not in system] if _moves_interrupts(spec, outlook) else []
    environment = render.file(
        IRQBALANCE_ENV, "irqbalance.env.j2", cpu_list=render.cpu_list(banned), cpu_mask=render.cpu_mask(banned)
    )
    drop_in = render.file(IRQBALANCE_DROP_IN, "irqbalance.service.d.j2", environment=IRQBALANCE_ENV)
    return [
        file_step("cpu.irqbalance_file", environment, facts, ROLE, why="CPUs that irqbalance must leave alone"),
        file_step("cpu.irqbalance_drop_in", drop_in, facts, ROLE, why="lets irqbalance read it", disruptive=True),
    ]


def _governor(spec: HostSpec, facts: Facts) -> Step:
    id, want = "cpu.governor", spec.cpu.governor
    online = [c for c in facts.cpu.logical if not is_known(c.online) or c.online]
    unread = [c for c in online if not is_known(c.governor)]
    if unread or not online:
        found = show(unread[0].governor) if unread else "no CPU"
        return refuse(
            id,
            f"the governor of {len(unread)} CPUs is {found}",
            expected=want,
            found=found,
            next="the frequency driver is missing: look at the BIOS",
        )
    others = [c for c in online if c.governor != want]
    if not others:
        return keep(id, f"all {len(online)} CPUs use {want}", expected=want, found=want)
    found = f"{len(others)} of {len(online)} CPUs use {', '.join(sorted({show(c.governor) for c in others}))}"
    return change(id, found, ROLE, expected=want, found=found, arguments=RESTART)


def _cstates(spec: HostSpec, facts: Facts, outlook: cores.Outlook) -> Step:
    id, limit = "cpu.cstates", spec.cpu.max_cstate_latency_us
    if limit is None:
        return keep(id, "C-states are declared to be left alone", found="not judged")
    expected = f"at most {limit} us on the fast cores"
    if not outlook.os_cpus:
        return refuse(
            id,
            "the fast cores are not known",
            expected=expected,
            found="see cpu.fast_cores",
            next="settle cpu.fast_cores first",
        )
    fast = [c for c in facts.cpu.logical if c.cpu in set(outlook.fast_cpus)]
    latencies = [c.cstate_latency_us for c in fast if is_known(c.cstate_latency_us)]
    if len(latencies) < len(fast):
        unread = next(c for c in fast if not is_known(c.cstate_latency_us))
        found = f"CPU {unread.cpu}: {show(unread.cstate_latency_us)}"
        return refuse(
            id,
            f"C-state latencies are not verified ({found})",
            expected=expected,
            found=found,
            next="declare max_cstate_latency_us null",
        )
    deepest = max(latencies)
    found = f"{deepest} us"
    if deepest <= limit:
        return keep(id, "fast cores stay out of slow C-states", expected=expected, found=found)
    return change(id, f"a fast core may sleep for {found} to wake", ROLE, expected=expected, found=found, arguments=RESTART)


def _interrupts(spec: HostSpec, facts: Facts, outlook: cores.Outlook) -> Step:
    id = "cpu.interrupts"
    if spec.cpu.interrupts == "leave":
        return keep(id, "interrupts are declared to be left alone", found="not judged")
    if not outlook.os_cpus:
        return refuse(
            id,
            "the CPUs for interrupts are not known",
            expected="off the serving CPUs",
            found="see cpu.fast_cores",
            next="settle cpu.fast_cores first",
        )
    allowed = set(outlook.os_cpus)
    expected = f"CPUs {render.cpu_list(allowed)}"
    now, default = facts.cpu.irq_cpus, facts.cpu.default_irq_cpus
    if not is_known(now) or not is_known(default):
        found = show(now if not is_known(now) else default)
        return refuse(id, f"where interrupts go is {found}", expected=expected, found=found, next="look at /proc/irq on the host")
    stuck = facts.cpu.irqs_immovable
    note = f"; cannot be moved by software: {stuck} interrupts" if is_known(stuck) and stuck else ""
    if set(now) <= allowed and set(default) <= allowed:
        found = f"CPUs {render.cpu_list(now)}{note}"
        return keep(id, f"interrupts stay on the system's CPUs{note}", expected=expected, found=found)
    found = f"CPUs {render.cpu_list(now)}, new ones {render.cpu_list(default)}{note}"
    return change(id, f"interrupts reach {found}", ROLE, expected=expected, found=found, arguments=RESTART)


def _irqbalance(facts: Facts, files: list[Step]) -> Step:
    """The daemon moves interrupts on its own, so it must run with the file as it now is."""
    id, now = "cpu.irqbalance", facts.services.get(IRQBALANCE_UNIT)
    if now is None or not is_known(now.active):
        return refuse(
            id,
            f"{IRQBALANCE_UNIT} could not be read",
            expected="known",
            found=show(now.active) if now else "not read",
            next="look at systemctl",
        )
    if now.active != "active":
        return keep(id, f"{IRQBALANCE_UNIT} does not run ({now.active})", expected="told, or not running", found=now.active)
    stale = is_known(now.needs_daemon_reload) and now.needs_daemon_reload
    if not stale and not any(s.action is Action.CHANGE for s in files):
        return keep(id, f"{IRQBALANCE_UNIT} runs with its list of CPUs", expected="told, or not running", found="told")
    if (refusal := blocked(id, IRQBALANCE_UNIT, facts, expected="told, or not running")) is not None:
        return refusal
    return change(
        id,
        f"{IRQBALANCE_UNIT} starts again with its list of CPUs",
        ROLE,
        expected="told, or not running",
        found="runs with an older list",
        disruptive=stale,
        arguments={"units_restart": [IRQBALANCE_UNIT]},
    )
