"""From the core decision and the assignment to the cells of the core map. Pure."""

from __future__ import annotations

from typing import Any

from kit.facts.model import Cpu
from kit.facts.unknown import is_known
from kit.report.coremap import Cell


def cells(cpu: Cpu, decision: Any, assignment: Any) -> tuple[Cell, ...]:
    made: dict[int, Cell] = {}
    for one in cpu.logical:
        cpus = one.siblings if is_known(one.siblings) else (one.cpu,)
        first = min(cpus)
        made.setdefault(
            first,
            Cell(
                first,
                tuple(cpus),
                one.package if is_known(one.package) else None,
                one.node if is_known(one.node) else None,
                "unknown",
                "no decision was recorded",
            ),
        )
    return tuple(made.values())


def reasons(decision: Any, assignment: Any) -> tuple[str, ...]:
    return ()
