"""Processors: as declared, which cores are fast, Priority Core Turbo, governor, C-states, interrupts."""

from __future__ import annotations

from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.cores.model import Assignment, CoreDecision
from kit.facts.model import Facts, LogicalCpu
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import render
from kit.plan.model import Action, ManagedFile, Step
from kit.plan.steps import change, file_step, keep, need, refuse, unit_step
from kit.plan.where import CPU_CONFIG, CPU_SCRIPT, CPU_UNIT, IRQBALANCE_DROP_IN, IRQBALANCE_ENV, IRQBALANCE_UNIT, unit_file
from kit.spec.model import HostSpec, Lock

ROLE = "cpu"
RESTART = {"units_restart": [CPU_UNIT]}
WRONG_HOST = "this host is not the one that was declared: ask the provider, or correct cpu in the host's file"


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Refusals on the hardware, then files and the boot unit, then each setting as it is now."""
    decision = decide(spec.cpu, facts.cpu)
    assignment = assign(spec.cpu, decision, facts) if decision.refused is None else None
    turbo = _turbo(spec, facts)
    files = _files(spec, facts, assignment)
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
        _fast_cores(spec, decision, turbo.action is Action.CHANGE),
        *files,
        unit_step("cpu.unit", CPU_UNIT, facts, ROLE, files[:3], why="sets governor, C-states, interrupts and CLOS at each boot"),
        turbo,
        _governor(spec, facts),
        _cstates(spec, facts, assignment),
        _interrupts(spec, facts, assignment),
        _irqbalance(spec, facts, files[3:], assignment),
    ]


def _fast_cores(spec: HostSpec, decision: CoreDecision, turbo_changes: bool) -> Step:
    want = spec.cpu.fast_cores
    expected = f"{want.count} physical cores at {want.mhz} MHz by {want.evidence}"
    if decision.refused is None:
        return keep("cpu.fast_cores", decision.reason, expected=expected, found=render.cpu_list(decision.fast_cores))
    if turbo_changes:
        return change(
            "cpu.fast_cores",
            "judged again once Priority Core Turbo is on",
            ROLE,
            expected=expected,
            found=decision.refused,
            disruptive=True,
        )
    return refuse(
        "cpu.fast_cores",
        f"the fast cores are not certain: {decision.refused}",
        expected=expected,
        found=decision.refused,
        next="`invoke probe --host NAME --measure-cores`; look at the BIOS (Priority Core Turbo, SST); or correct cpu.fast_cores",
    )


def _turbo(spec: HostSpec, facts: Facts) -> Step:
    """Priority Core Turbo works only while SST-TF and SST-CP are on and the priority CPUs are in CLOS 0."""
    id, want, now = "cpu.priority_core_turbo", spec.cpu.fast_cores.priority_core_turbo, facts.cpu.priority
    if want == "leave":
        return keep(id, "Priority Core Turbo is declared to be left alone", expected=want, found="not judged")
    if not is_known(now.supported) or not now.supported:
        why = "not supported by this processor or its BIOS" if is_known(now.supported) else show(now.supported)
        if want == "required":
            return refuse(
                id,
                f"Priority Core Turbo: {why}",
                expected="on",
                found=why,
                next="switch it on in the BIOS; install intel-speed-select",
            )
        return keep(
            id, f"Priority Core Turbo is {why}; the fast cores are judged by other evidence", expected="if supported", found=why
        )
    if not is_known(now.enabled):
        return refuse(
            id,
            f"whether Priority Core Turbo is on is {show(now.enabled)}",
            expected="on",
            found=now.enabled,
            next="`intel-speed-select perf-profile info`",
        )
    if now.enabled and is_known(now.priority_cpus) and now.priority_cpus:
        listed = render.cpu_list(now.priority_cpus)
        return keep(id, f"Priority Core Turbo is on, CPUs {listed} in CLOS 0", expected="on", found=listed)
    chosen = priority_cpus(spec, facts)
    if not is_known(chosen):
        return refuse(id, f"no priority cores can be chosen: {show(chosen)}", expected="on", found=chosen, next=WRONG_HOST)
    return change(
        id,
        f"Priority Core Turbo is supported but off; it goes on with CPUs {render.cpu_list(chosen)} in CLOS 0",
        ROLE,
        expected="on",
        found="off",
        disruptive=True,
        arguments=RESTART,
    )


def priority_cpus(spec: HostSpec, facts: Facts) -> tuple[int, ...] | Unknown:
    """Logical CPUs to make priority cores where none are: an equal share a socket, spread over its NUMA nodes.

    The core of CPU 0 is left out: the boot processor takes what the system cannot move. More than the highest bucket's
    number of cores a socket would lower the clock of all of them.
    """
    now = facts.cpu.priority
    if is_known(now.priority_cpus) and now.priority_cpus:
        return now.priority_cpus
    share = spec.cpu.fast_cores.count // spec.cpu.packages
    if not is_known(now.bucket_cores) or share * spec.cpu.packages != spec.cpu.fast_cores.count or share > now.bucket_cores:
        return Unknown(
            unknown=f"{spec.cpu.fast_cores.count} fast cores do not fit the highest bucket of {show(now.bucket_cores)} a socket"
        )
    by_socket: dict[int, dict[int, list[tuple[int, ...]]]] = {}
    for cpu in facts.cpu.logical:
        if not (is_known(cpu.package) and is_known(cpu.siblings)):
            return Unknown(unknown=f"the place of CPU {cpu.cpu} is not known")
        if cpu.siblings[0] == cpu.cpu and 0 not in cpu.siblings:
            node = cpu.node if is_known(cpu.node) else 0
            by_socket.setdefault(cpu.package, {}).setdefault(node, []).append(cpu.siblings)
    chosen: list[int] = []
    for nodes in by_socket.values():
        ordered = [nodes[node] for node in sorted(nodes)]
        turns = [cores[i] for i in range(max(map(len, ordered))) for cores in ordered if i < len(cores)]
        if len(turns) < share:
            return Unknown(unknown="a socket has too few cores")
        chosen += [cpu for siblings in turns[:share] for cpu in siblings]
    return tuple(sorted(chosen))


def _files(spec: HostSpec, facts: Facts, assignment: Assignment | None) -> list[Step]:
    """Three of the boot unit, two of irqbalance. Without a core decision nothing is written about cores: it is refused anyway."""
    housekeeping, serving = _places(assignment)
    off_serving = spec.cpu.interrupts == "off_serving_cores" and bool(housekeeping)
    latency = spec.cpu.max_cstate_latency_us
    turbo = facts.cpu.priority
    manages_turbo = spec.cpu.fast_cores.priority_core_turbo != "leave" and is_known(turbo.supported) and turbo.supported
    chosen = priority_cpus(spec, facts) if manages_turbo else None
    settings = {
        "governor": spec.cpu.governor,
        "cstates": None if latency is None else {"max_latency_us": latency, "cpus": render.cpu_list(serving)},
        "interrupts": {"cpus": render.cpu_list(housekeeping), "mask": render.cpu_mask(housekeeping)} if off_serving else None,
        "priority": {"cpus": render.cpu_list(chosen)} if chosen is not None and is_known(chosen) else None,
    }
    unit = render.text("cpu.service.j2", script=CPU_SCRIPT, config=CPU_CONFIG)
    everywhere = [c.cpu for c in facts.cpu.logical]
    banned = [c for c in everywhere if c not in housekeeping] if off_serving else []
    environment = render.file(
        IRQBALANCE_ENV, "irqbalance.env.j2", cpu_list=render.cpu_list(banned), cpu_mask=render.cpu_mask(banned)
    )
    return [
        file_step("cpu.config_file", render.settings(CPU_CONFIG, settings), facts, ROLE, why="what the boot unit sets"),
        file_step("cpu.script_file", render.script(CPU_SCRIPT, "cpu.py"), facts, ROLE, why="what the boot unit runs"),
        file_step(
            "cpu.unit_file",
            ManagedFile(path=unit_file(CPU_UNIT), content=unit),
            facts,
            ROLE,
            why="the boot unit",
            disruptive=True,
        ),
        file_step("cpu.irqbalance_file", environment, facts, ROLE, why="CPUs that irqbalance must leave alone"),
        file_step(
            "cpu.irqbalance_drop_in",
            render.file(IRQBALANCE_DROP_IN, "irqbalance.service.d.j2", environment=IRQBALANCE_ENV),
            facts,
            ROLE,
            why="lets irqbalance read it",
            disruptive=True,
        ),
    ]


def _places(assignment: Assignment | None) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(CPUs of the system and of interrupts, CPUs that serve)."""
    if assignment is None:
        return (), ()
    return assignment.os_cpus, assignment.serving_cpus


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


def _cstates(spec: HostSpec, facts: Facts, assignment: Assignment | None) -> Step:
    id, limit = "cpu.cstates", spec.cpu.max_cstate_latency_us
    if limit is None:
        return keep(id, "C-states are declared to be left alone", found="not judged")
    expected = f"at most {limit} us on serving CPUs"
    if assignment is None:
        return refuse(
            id,
            "the serving CPUs are not known",
            expected=expected,
            found="see cpu.fast_cores",
            next="settle cpu.fast_cores first",
        )
    serving = [c for c in facts.cpu.logical if c.cpu in set(assignment.serving_cpus)]
    unread = [c for c in serving if not is_known(c.cstate_latency_us)]
    if unread:
        found = f"CPU {unread[0].cpu}: {show(unread[0].cstate_latency_us)}"
        return refuse(
            id,
            f"C-state latencies are not verified ({found})",
            expected=expected,
            found=found,
            next="declare max_cstate_latency_us null",
        )
    deepest = max((_latency(c) for c in serving), default=0)
    found = f"{deepest} us"
    if deepest <= limit:
        return keep(id, "serving CPUs stay out of slow C-states", expected=expected, found=found)
    return change(id, f"a serving CPU may sleep for {found} to wake", ROLE, expected=expected, found=found, arguments=RESTART)


def _latency(cpu: LogicalCpu) -> int:
    return cpu.cstate_latency_us if is_known(cpu.cstate_latency_us) else 0


def _interrupts(spec: HostSpec, facts: Facts, assignment: Assignment | None) -> Step:
    id = "cpu.interrupts"
    if spec.cpu.interrupts == "leave":
        return keep(id, "interrupts are declared to be left alone", found="not judged")
    if assignment is None:
        return refuse(
            id,
            "the CPUs for interrupts are not known",
            expected="off the serving CPUs",
            found="see cpu.fast_cores",
            next="settle cpu.fast_cores first",
        )
    allowed = set(assignment.os_cpus)
    expected = f"CPUs {render.cpu_list(allowed)}"
    now, default = facts.cpu.irq_cpus, facts.cpu.default_irq_cpus
    if not is_known(now) or not is_known(default):
        found = show(now if not is_known(now) else default)
        return refuse(id, f"where interrupts go is {found}", expected=expected, found=found, next="look at /proc/irq on the host")
    if set(now) <= allowed and set(default) <= allowed:
        return keep(
            id, "interrupts that can move stay on the system's CPUs", expected=expected, found=f"CPUs {render.cpu_list(now)}"
        )
    found = f"CPUs {render.cpu_list(now)}, new ones {render.cpu_list(default)}"
    return change(id, f"interrupts reach {found}", ROLE, expected=expected, found=found, arguments=RESTART)


def _irqbalance(spec: HostSpec, facts: Facts, files: list[Step], assignment: Assignment | None) -> Step:
    """The daemon moves interrupts on its own, so it must run with the file as it now is; where it does not run, nothing is to do."""
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
    return change(
        id,
        f"{IRQBALANCE_UNIT} starts again with its list of CPUs",
        ROLE,
        expected="told, or not running",
        found="runs with an older list",
        disruptive=stale,
        arguments={"units_restart": [IRQBALANCE_UNIT]},
    )
