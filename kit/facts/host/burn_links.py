"""Bandwidth between each two GPUs, one way and both ways at once, and whether the bytes arrived. A child process."""

from __future__ import annotations

from itertools import combinations

from kit.facts.host.burn_clocks import Clocks
from kit.facts.host.burn_gpu import ADDRESS, GIB, Gpu, attempt, every_gpu, figure
from kit.facts.host.child import answer, die_with_parent, doing
from kit.facts.host.read import Json, Unreadable, fact, is_unknown

_ONE_WAY = 10
_BOTH_WAYS = 5
_COPIES = 8
"""In one run of both ways: long enough that the two streams overlap nearly all of the time."""

Buffers = dict[int, tuple[int, int]]
"""GPU's ordinal -> (what it sends, where it receives), a GiB each."""


def _one_way(source: Gpu, target: Gpu, buffers: Buffers) -> tuple[Json, int]:
    """(bandwidth, words that arrived wrong)."""
    out, into = buffers[source.ordinal][0], buffers[target.ordinal][1]
    target.fill_words(into, GIB, 0)
    target.forget_wrong()
    source.synchronize()
    source.copy_to(target, into, out, GIB)
    source.synchronize()
    target.check(into, GIB, ADDRESS, source.ordinal << 40)
    wrong = target.wrong()[0]
    return figure(GIB, [source.timed(source.copy_to, target, into, out, GIB) for _ in range(_ONE_WAY)]), wrong


def _both_ways(one: Gpu, other: Gpu, buffers: Buffers) -> Json:
    """Sum over both directions."""
    ways = ((one, other), (other, one))
    seconds = []
    for _ in range(_BOTH_WAYS):
        for source, _target in ways:
            source.begin()
        for _ in range(_COPIES):
            for source, target in ways:
                source.copy_to(target, buffers[target.ordinal][1], buffers[source.ordinal][0], GIB)
        for source, _target in ways:
            source.end()
        # Each direction moved the same bytes: the mean of the two rates, twice, is their sum.
        rates = [1.0 / max(source.seconds(), 1e-12) for source, _target in ways]
        seconds.append(2.0 / sum(rates))
    return figure(2 * _COPIES * GIB, seconds)


def _pair(one: Gpu, other: Gpu, buffers: Buffers, clocks: Clocks) -> Json:
    doing(f"GPUs {one.ordinal} and {other.ordinal}: copying")
    before = [clocks.sm_mhz(gpu.bus_id) for gpu in (one, other)]
    access = [one.reach(other), other.reach(one)]
    there, wrong_there = _one_way(one, other, buffers)
    back, wrong_back = _one_way(other, one, buffers)
    return {
        "peer_access": all(access),
        "there": there,
        "back": back,
        "both": _both_ways(one, other, buffers),
        "wrong_words": wrong_there + wrong_back,
        "sm_mhz_before": before,
        "sm_mhz_after": [clocks.sm_mhz(gpu.bus_id) for gpu in (one, other)],
    }


def read() -> Json:
    """``[[two PCI addresses], figures]`` a pair.

    A pair that failed makes the whole unknown: the lowest of the others would say too much.
    """
    doing("starting CUDA")
    gpus = every_gpu()
    if len(gpus) < 2:
        raise Unreadable(f"{len(gpus)} GPU: no pair")
    clocks = Clocks()
    buffers = {gpu.ordinal: (gpu.allocate(GIB), gpu.allocate(GIB)) for gpu in gpus}
    for gpu in gpus:
        gpu.fill(buffers[gpu.ordinal][0], GIB, ADDRESS, gpu.ordinal << 40)
        gpu.synchronize()
    pairs = []
    for one, other in combinations(gpus, 2):
        pair = attempt(_pair, one, other, buffers, clocks)
        if is_unknown(pair):
            raise Unreadable(f"GPUs {one.ordinal} and {other.ordinal}: {pair['unknown']}")
        pairs.append([[one.bus_id, other.bus_id], pair])
    return pairs


def main() -> int:
    """Child process."""
    die_with_parent()
    return answer(fact(read))
