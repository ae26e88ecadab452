"""Fast cores and Priority Core Turbo: what they are now, and what they will be once the plan is applied.

Priority Core Turbo makes the cores fast that it is given; so with it still off, the cores are judged as they will be with it
on. Then the files of one plan are right for the host it leaves behind.
"""

from __future__ import annotations

from dataclasses import dataclass

from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.cores.model import Assignment, CoreDecision
from kit.facts.model import Cpu, Facts, PriorityCores
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import render
from kit.plan.model import Action, Step
from kit.plan.steps import change, keep, refuse
from kit.plan.where import CPU_UNIT
from kit.spec.model import HostSpec

ROLE = "cpu"


@dataclass(frozen=True)
class Outlook:
    """Cores as they will be. CPU tuples are empty where the fast cores are not decided."""

    fast_cores: Step
    turbo: Step
    priority_cpus: tuple[int, ...]
    """For CLOS 0; empty where Priority Core Turbo is left alone or not there."""
    fast_cpus: tuple[int, ...]
    """All threads of the fast cores."""
    decision: CoreDecision
    assignment: Assignment | None
    """Who sits where; None where the fast cores are not decided."""

    @property
    def os_cpus(self) -> tuple[int, ...]:
        """Of the operating system and of interrupts."""
        return self.assignment.os_cpus if self.assignment else ()


def look(spec: HostSpec, facts: Facts) -> Outlook:
    """Decide with Priority Core Turbo as this plan leaves it."""
    now = decide(spec.cpu, facts.cpu)
    chosen = _priority_cpus(spec, facts.cpu, now) if _manages(spec, facts.cpu) else ()
    turbo = _turbo(spec, facts.cpu, chosen)
    later = facts.cpu
    if turbo.action is Action.CHANGE and is_known(chosen):
        on = facts.cpu.priority.model_copy(update={"enabled": True, "priority_cpus": chosen})
        later = facts.cpu.model_copy(update={"priority": on})
    decision = decide(spec.cpu, later)
    known = decision.refused is None
    return Outlook(
        fast_cores=_fast_cores(spec, now, decision),
        turbo=turbo,
        priority_cpus=chosen if is_known(chosen) else (),
        fast_cpus=_threads(facts.cpu, decision.fast_cores) if known else (),
        decision=decision,
        assignment=assign(spec.cpu, decision, facts) if known else None,
    )


def _threads(cpu: Cpu, heads: tuple[int, ...]) -> tuple[int, ...]:
    """All logical CPUs of these physical cores."""
    wanted = set(heads)
    found = [c.cpu for c in cpu.logical if is_known(c.siblings) and c.siblings and c.siblings[0] in wanted]
    return tuple(sorted(found))


def _manages(spec: HostSpec, cpu: Cpu) -> bool:
    supported = cpu.priority.supported
    return spec.cpu.fast_cores.priority_core_turbo != "leave" and is_known(supported) and supported


def _fast_cores(spec: HostSpec, now: CoreDecision, later: CoreDecision) -> Step:
    id, want = "cpu.fast_cores", spec.cpu.fast_cores
    expected = f"{want.count} physical cores at {want.mhz} MHz by {want.evidence}"
    if later.refused is not None:
        return refuse(
            id,
            f"the fast cores are not certain: {later.refused}",
            expected=expected,
            found=later.reason,
            next="`invoke probe --host NAME --measure-cores`; look at the BIOS (Priority Core Turbo); or correct cpu.fast_cores",
        )
    found = f"cores {render.cpu_list(later.fast_cores)}"
    if now.refused is None and now.fast_cores == later.fast_cores:
        return keep(id, later.reason, expected=expected, found=found)
    return change(
        id, "they become fast with Priority Core Turbo", ROLE, expected=found, found=now.refused or show(now.fast_cores)
    )


def _turbo(spec: HostSpec, cpu: Cpu, chosen: tuple[int, ...] | Unknown) -> Step:
    """It works only while SST-TF and SST-CP are on and the priority CPUs are in CLOS 0."""
    id, want, now = "cpu.priority_core_turbo", spec.cpu.fast_cores.priority_core_turbo, cpu.priority
    if want == "leave":
        return keep(id, "Priority Core Turbo is declared to be left alone", expected=want, found="not judged")
    if now.tool and (unread := _unread(now)) is not None:
        # Taken for "not there" or "off", a tool that hangs would have it switched off, or started anew.
        return refuse(
            id,
            f"Priority Core Turbo is {show(unread)}",
            expected="an answer of intel-speed-select",
            found=unread,
            next="run `intel-speed-select perf-profile info` on the host, then again; or declare priority_core_turbo `leave`",
        )
    if not is_known(now.supported) or not now.supported:
        why = "not supported by this processor or its BIOS" if is_known(now.supported) else show(now.supported)
        if want == "required":
            return refuse(
                id,
                f"Priority Core Turbo: {why}",
                expected="on",
                found=why,
                next="switch it on in the BIOS",
            )
        return keep(
            id, f"Priority Core Turbo is {why}; the fast cores are judged by other evidence", expected="if supported", found=why
        )
    if not is_known(chosen):
        return refuse(
            id, f"no priority cores can be chosen: {show(chosen)}", expected="on", found=chosen, next="correct cpu.fast_cores"
        )
    listed = render.cpu_list(chosen)
    if is_known(now.enabled) and now.enabled and now.priority_cpus == chosen:
        return keep(id, f"Priority Core Turbo is on, CPUs {listed} in CLOS 0", expected="on", found=listed)
    return change(
        id,
        f"Priority Core Turbo is supported but off; it goes on with CPUs {listed} in CLOS 0",
        ROLE,
        expected="on",
        found="off",
        disruptive=True,
        arguments={"units_restart": [CPU_UNIT]},
    )


def _unread(now: PriorityCores) -> Unknown | None:
    """What intel-speed-select did not say. The association means something only while the feature is on."""
    on = is_known(now.enabled) and now.enabled
    asked = (now.supported, now.enabled, *((now.priority_cpus,) if on else ()))
    return next((answer for answer in asked if not is_known(answer)), None)


def _priority_cpus(spec: HostSpec, cpu: Cpu, now: CoreDecision) -> tuple[int, ...] | Unknown:
    """Logical CPUs for CLOS 0: those there now; else the fast cores of other evidence; else an even share of each socket.

    Evenly over a socket's cores, because every power domain must hold one for the feature to go on there; it also serves
    each NUMA node alike. The core of CPU 0 is never taken: the boot processor does what the system cannot move. More than
    the highest bucket's number of cores a socket would lower the clock of all of them.
    """
    priority = cpu.priority
    if is_known(priority.priority_cpus) and priority.priority_cpus:
        return priority.priority_cpus
    if now.refused is None:
        return _threads(cpu, now.fast_cores)
    count, sockets = spec.cpu.fast_cores.count, spec.cpu.packages
    share = count // sockets
    if not is_known(priority.bucket_cores) or share * sockets != count or share > priority.bucket_cores:
        return Unknown(unknown=f"{count} fast cores do not fit the highest bucket of {show(priority.bucket_cores)} a socket")
    by_socket: dict[int, list[int]] = {}
    for one in cpu.logical:
        if not (is_known(one.package) and is_known(one.siblings)):
            return Unknown(unknown=f"the place of CPU {one.cpu} is not known")
        if one.siblings and one.siblings[0] == one.cpu:
            by_socket.setdefault(one.package, []).append(one.cpu)
    if len(by_socket) != sockets or any(len(heads) < 2 * share for heads in by_socket.values()):
        return Unknown(unknown="the sockets hold too few cores")
    heads = [cores[(2 * turn + 1) * len(cores) // (2 * share)] for cores in by_socket.values() for turn in range(share)]
    return _threads(cpu, tuple(heads))
