"""Who runs on which core. Pure.

1. The operating system and interrupts: as many slow physical cores as declared, in turns over the NUMA nodes, lowest first;
   where all cores are fast, of those.
2. Each GPU's scheduler: one fast core with its siblings, in the GPU's NUMA node where that has one left. GPUs without a
   known node, or whose node has no fast core, come after those: from the node with most fast cores left.
3. Detokenizer, then tokenizer: likewise, from the fast cores left over; a slow one when none is, and the reason says so.
4. Everything else of the engine: all that is not above.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kit.cores.model import Assignment, CoreDecision, Seat
from kit.cores.topology import Core, physical
from kit.facts.model import Facts, Gpu
from kit.facts.unknown import is_known
from kit.spec.model import Cpus


def assign(spec: Cpus, decision: CoreDecision, facts: Facts) -> Assignment:
    """Seats for one host. ``decision`` must not be refused (ValueError): there is nothing to seat on then."""
    cores = physical(facts.cpu)
    if decision.refused is not None or not is_known(cores):
        raise ValueError(f"no assignment without a core decision: {decision.refused}")
    notes: list[str] = []
    slow = _Pool(core for head, core in cores.items() if head not in decision.fast_cores)
    fast = _Pool(cores[head] for head in decision.fast_cores)
    quiet = slow if slow.left else fast
    system = [core for core in (quiet.take_in_turn() for _ in range(spec.os_cores)) if core]
    if len(system) < spec.os_cores:
        notes.append(f"{len(system)} cores for the system where {spec.os_cores} are declared")
    gpus = facts.gpu.gpus if is_known(facts.gpu) else facts.gpu
    schedulers: tuple[Seat, ...] = ()
    if not is_known(gpus):
        notes.append(f"no scheduler is seated: the GPUs are {gpus}")
    elif len(gpus) > len(fast.left):
        notes.append(f"no scheduler is seated: {len(gpus)} GPUs, {len(fast.left)} fast cores")
    else:
        schedulers = _schedulers(gpus, fast)
    helpers = [_helper(name, fast, slow) for name in ("detokenizer", "tokenizer")]
    seats = [*schedulers, *(seat for seat in helpers if seat)]
    taken = {cpu for core in system for cpu in core.cpus}
    serving = sorted(cpu for core in cores.values() for cpu in core.cpus if cpu not in taken)
    seated = {cpu for seat in seats for cpu in seat.cpus}
    return Assignment(
        schedulers=schedulers,
        detokenizer=helpers[0],
        tokenizer=helpers[1],
        rest_cpus=tuple(cpu for cpu in serving if cpu not in seated),
        os_cpus=tuple(sorted(taken)),
        serving_cpus=tuple(serving),
        reason="; ".join([_summary(schedulers), *notes]),
    )


class _Pool:
    """Cores not yet given away. The lowest-numbered goes first, so that the same facts give the same seats."""

    def __init__(self, cores: Iterable[Core]) -> None:
        self.left = sorted(cores, key=lambda core: core.head)
        self.given: dict[int | None, int] = {}

    def take(self, node: int) -> Core | None:
        """A core of this node."""
        return self._give(next((core for core in self.left if core.node == node), None))

    def take_evenly(self) -> Core | None:
        """A core of the node that has most left."""
        counts = _count(self.left)
        return self._give(min(self.left, key=lambda core: (-counts[core.node], core.head), default=None))

    def take_in_turn(self) -> Core | None:
        """A core of the node that gave the fewest."""
        return self._give(min(self.left, key=lambda core: (self.given.get(core.node, 0), core.head), default=None))

    def _give(self, core: Core | None) -> Core | None:
        if core:
            self.left.remove(core)
            self.given[core.node] = self.given.get(core.node, 0) + 1
        return core


def _count(cores: Iterable[Core]) -> Mapping[int | None, int]:
    counts: dict[int | None, int] = {}
    for core in cores:
        counts[core.node] = counts.get(core.node, 0) + 1
    return counts


def _schedulers(gpus: tuple[Gpu, ...], fast: _Pool) -> tuple[Seat, ...]:
    """One seat a GPU. There are at least as many fast cores."""
    seats: dict[int, Seat] = {}
    for gpu in gpus:
        core = fast.take(gpu.numa_node) if is_known(gpu.numa_node) else None
        if core:
            seats[gpu.index] = _scheduler(gpu, core, True, f"in GPU {gpu.index}'s NUMA node {core.node}")
    for gpu in gpus:
        if gpu.index in seats:
            continue
        core = fast.take_evenly()
        assert core, "as many fast cores as GPUs were counted"
        node = gpu.numa_node
        if is_known(node):
            why = f"GPU {gpu.index}'s NUMA node {node} has no fast core left; its memory traffic crosses nodes"
            seats[gpu.index] = _scheduler(gpu, core, False, why)
        else:
            seats[gpu.index] = _scheduler(gpu, core, None, f"GPU {gpu.index}'s NUMA node is {node}; spread evenly")
    return tuple(seats[gpu.index] for gpu in sorted(gpus, key=lambda gpu: gpu.index))


def _scheduler(gpu: Gpu, core: Core, near: bool | None, reason: str) -> Seat:
    return _seat(f"scheduler {gpu.index}", core, True, reason).model_copy(update={"gpu": gpu.index, "near_gpu": near})


def _helper(name: str, fast: _Pool, slow: _Pool) -> Seat | None:
    core = fast.take_evenly()
    if core:
        return _seat(name, core, True, "a fast core left over, from the node with most of them")
    core = slow.take_evenly()
    return _seat(name, core, False, "no fast core is left over: a slow one") if core else None


def _seat(name: str, core: Core, fast: bool, reason: str) -> Seat:
    return Seat(name=name, core=core.head, cpus=core.cpus, node=core.node, fast=fast, reason=reason)


def _summary(schedulers: tuple[Seat, ...]) -> str:
    if not schedulers:
        return "no seats for schedulers"
    away = [seat.reason for seat in schedulers if seat.near_gpu is not True]
    if not away:
        return f"{len(schedulers)} schedulers, each on a fast core in its GPU's NUMA node"
    return f"{len(schedulers)} schedulers on fast cores; " + "; ".join(away)
