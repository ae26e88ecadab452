"""Was the engine idle but for the gate? A batch with somebody else's request in it gives other bytes and another speed."""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, fault


class Idle(Frozen):
    """Counters of the engine around a gate. None: could not be read."""

    running_before: int | None
    """Requests that ran or waited just before."""
    generated: int | None
    """Tokens that the engine generated meanwhile, by its own counter."""
    own: int
    """Tokens that this gate asked for and got."""
    slack: int = 0
    """Tokens that health checks may have generated."""


def idle_faults(gate: str, idle: Idle) -> list[Fault]:
    """Empty when nobody else was served. Each makes the gate inconclusive: run it again on an idle engine."""
    step = "take the node out of the router and run it again"
    if idle.running_before is None or idle.generated is None:
        return [fault(f"{gate}.idle", "engine", "an idle engine", "its counters could not be read")]
    out: list[Fault] = []
    if idle.running_before > 0:
        out.append(fault(f"{gate}.idle", "engine", "no request before", f"{idle.running_before} running or waiting", step))
    foreign = idle.generated - idle.own
    if foreign > idle.slack:
        out.append(fault(f"{gate}.idle", "engine", "no token of another request", f"{foreign} tokens", step))
    return out
