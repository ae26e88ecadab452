"""fast_cores: each scheduler is allowed on its seat's CPUs alone, every time it is looked at."""

from __future__ import annotations

from collections.abc import Mapping

from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, Judgement, fault, judged


class Look(Frozen):
    """One look at one process: the CPUs that each of its threads may use."""

    at_s: float
    process: str
    """Its title, e.g. ``sglang::scheduler_TP0``."""
    threads: tuple[tuple[int, ...], ...]


class Evidence(Frozen):
    """Looks over time, before, during and after load. None: could not be read."""

    seats: Mapping[str, tuple[int, ...]]
    """Process title -> the CPUs of its seat."""
    looks: tuple[Look, ...] | None


class Limits(Frozen):
    """One look proves a pin that somebody may undo a second later."""

    looks_min: int = 3
    seconds_min: float = 5.0


def judge(evidence: Evidence, limits: Limits) -> Judgement:
    """Every thread of every look inside the seat; enough looks over enough time."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    if evidence.looks is None or not evidence.seats:
        what = "the core plan has no seat" if evidence.looks is not None else "could not be read"
        unknown.append(fault("fast_cores.unknown", "schedulers", "seats and looks", what))
    for title, seat in evidence.seats.items() if evidence.looks is not None else ():
        mine = [look for look in evidence.looks or () if look.process == title]
        if not mine:
            wrong.append(fault("fast_cores.missing", title, "a process of that title", "none", "is the engine up?"))
            continue
        span = max(look.at_s for look in mine) - min(look.at_s for look in mine)
        if len(mine) < limits.looks_min or span < limits.seconds_min:
            expected = f"{limits.looks_min} looks over {limits.seconds_min:g} s"
            unknown.append(fault("fast_cores.unknown", title, expected, f"{len(mine)} over {span:.1f} s"))
        stray = sorted({cpu for look in mine for thread in look.threads for cpu in thread if cpu not in seat})
        if stray or any(not look.threads for look in mine):
            found = f"allowed on CPUs {', '.join(map(str, stray[:8]))}" if stray else "no thread could be read"
            step = "something moved it: look for SGLANG_SET_CPU_AFFINITY, numactl, or a cpuset that was changed"
            wrong.append(fault("fast_cores.lost", title, f"CPUs {', '.join(map(str, seat))}", found, step))
    looks = len(evidence.looks or ())
    return judged(wrong, unknown, f"{len(evidence.seats)} schedulers stayed on their seats", {"looks": looks})
