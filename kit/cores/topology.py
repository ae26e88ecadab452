"""Physical cores from logical CPUs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kit.facts.model import Cpu, LogicalCpu
from kit.facts.unknown import Unknown, is_known


@dataclass(frozen=True)
class Core:
    """A physical core: its lowest CPU names it."""

    head: int
    threads: tuple[LogicalCpu, ...]

    @property
    def cpus(self) -> tuple[int, ...]:
        """Its logical CPUs, ascending."""
        return tuple(t.cpu for t in self.threads)

    @property
    def node(self) -> int | None:
        """Its NUMA node; None when that is not known."""
        node = self.threads[0].node
        return node if is_known(node) else None


def physical(cpu: Cpu) -> dict[int, Core] | Unknown:
    """Head -> core, of all CPUs that are online; Unknown when a CPU's siblings are not known or contradict each other."""
    by_head: dict[int, list[LogicalCpu]] = {}
    online = [one for one in cpu.logical if not (is_known(one.online) and not one.online)]
    if not online:
        return Unknown(unknown="no CPU was found")
    for one in sorted(online, key=lambda c: c.cpu):
        if not is_known(one.siblings):
            return Unknown(unknown=f"siblings of CPU {one.cpu}: {one.siblings.unknown}")
        if one.cpu not in one.siblings:
            return Unknown(unknown=f"CPU {one.cpu} is not among its own siblings {one.siblings}")
        by_head.setdefault(min(one.siblings), []).append(one)
    cores = {head: Core(head, tuple(threads)) for head, threads in by_head.items()}
    for head, core in cores.items():
        if core.cpus[0] != head or len({t.siblings for t in core.threads if is_known(t.siblings)}) != 1:
            return Unknown(unknown=f"the siblings of CPUs {core.cpus} contradict each other")
    return cores


def by_core(cores: Mapping[int, Core], read: Callable[[LogicalCpu], float | int | Unknown]) -> dict[int, float] | Unknown:
    """Core -> the highest number of its threads; Unknown with how many cores lack it."""
    found: dict[int, float] = {}
    reasons: list[str] = []
    for head, core in cores.items():
        numbers = [float(value) for value in map(read, core.threads) if is_known(value) and value > 0]
        if len(numbers) == len(core.threads):
            found[head] = max(numbers)
        else:
            reasons += [v.unknown if isinstance(v, Unknown) else f"{v} is no speed" for v in map(read, core.threads)]
    if len(found) == len(cores):
        return found
    return Unknown(unknown=f"known for {len(found)} of {len(cores)} cores ({reasons[0]})")
