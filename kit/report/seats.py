"""From the core decision and the assignment to the cells of the core map. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from kit.cores.model import Assignment, CoreDecision, Seat
from kit.facts.model import Cpu, LogicalCpu, MeasuredCore
from kit.facts.unknown import Unknown, is_known
from kit.report.coremap import LABELS, MEANING, Cell, Occupant, Role, Speed


def cells(cpu: Cpu, decision: CoreDecision | None, assignment: Assignment | None) -> tuple[Cell, ...]:
    """One cell a physical core, in the order of their lowest logical CPU. Without a decision no core's speed is known."""
    measured = {one.core_cpu: one for one in cpu.measured.cores} if is_known(cpu.measured) else {}
    unit = f" {'MHz' if cpu.measured.unit == 'mhz' else 'of the median'}" if is_known(cpu.measured) else ""
    made = []
    for head, threads in sorted(_cores(cpu).items()):
        first = threads[0]
        cpus = tuple(sorted(one.cpu for one in threads))
        detail = _speed_text(first, measured.get(head), unit)
        if not any(one.usable for one in threads):
            detail += ", no process can run on it here"
        made.append(
            Cell(
                head,
                cpus,
                _number(first.package),
                _number(first.node),
                _speed(head, decision),
                detail,
                _occupant(head, cpus, assignment),
            )
        )
    return tuple(made)


def seated(assignment: Assignment) -> tuple[Seat, ...]:
    """The seats that have a core of their own: schedulers by rank, then the detokenizer and the tokenizer."""
    return (*assignment.schedulers, *(seat for seat in (assignment.detokenizer, assignment.tokenizer) if seat))


def reasons(decision: CoreDecision | None, assignment: Assignment | None) -> tuple[str, ...]:
    """Why these cores are called fast, and why who sits where."""
    if decision is None:
        return ("No core decision was recorded in this run, so no core's speed is called verified.",)
    if decision.refused is not None:
        return (f"Not decided, so no core's speed is called verified: {decision.refused}",)
    return (decision.reason, *([assignment.reason] if assignment else ()))


def _cores(cpu: Cpu) -> dict[int, list[LogicalCpu]]:
    """Logical CPUs by the lowest one of their core. One whose siblings are not known is drawn as a core of its own."""
    cores: dict[int, list[LogicalCpu]] = {}
    for one in sorted(cpu.logical, key=lambda logical: logical.cpu):
        head = min(one.siblings) if is_known(one.siblings) and one.siblings else one.cpu
        cores.setdefault(head, []).append(one)
    return cores


def _number(fact: int | Unknown) -> int | None:
    return fact if is_known(fact) else None


def _speed(head: int, decision: CoreDecision | None) -> Speed:
    if decision is None or decision.refused is not None:
        return "unknown"
    return "fast" if head in decision.fast_cores else "slow"


def _speed_text(first: LogicalCpu, measured: MeasuredCore | None, unit: str) -> str:
    if measured is not None and is_known(measured.alone_mhz):
        loaded = f", {measured.loaded_mhz:.4g}{unit} under load" if is_known(measured.loaded_mhz) else ""
        return f"measured {measured.alone_mhz:.4g}{unit} alone{loaded}"
    if is_known(first.max_khz):
        return f"claims {first.max_khz // 1000} MHz, not measured"
    return f"its frequency is not verified: {first.max_khz.unknown}"


def _occupant(head: int, cpus: tuple[int, ...], assignment: Assignment | None) -> Occupant | None:
    if assignment is None:
        return None
    for role, label, seat in _labelled(assignment):
        if seat.core == head:
            return Occupant(role, label, seat.name)
    shared: tuple[tuple[Role, tuple[int, ...]], ...] = (("os", assignment.os_cpus), ("rest", assignment.rest_cpus))
    for role, where in shared:
        if not set(cpus).isdisjoint(where):
            return Occupant(role, LABELS[role], MEANING[role])
    return None


def _labelled(assignment: Assignment) -> Iterator[tuple[Role, str, Seat]]:
    for rank, seat in enumerate(assignment.schedulers):
        yield "scheduler", f"{LABELS['scheduler']}{rank if seat.gpu is None else seat.gpu}", seat
    if assignment.detokenizer:
        yield "detokenizer", LABELS["detokenizer"], assignment.detokenizer
    if assignment.tokenizer:
        yield "tokenizer", LABELS["tokenizer"], assignment.tokenizer
