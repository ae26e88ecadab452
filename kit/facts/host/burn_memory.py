"""HBM check: nearly all free memory written with patterns, read back, copied across and read back again. A child process.

The bandwidths are by-products: filled counts bytes written, compared bytes read, copied both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from kit.facts.host.burn_clocks import Clocks
from kit.facts.host.burn_gpu import ADDRESS, GIB, PATTERNS, Gpu, Pattern, attempt, every_gpu, figure
from kit.facts.host.child import answer, die_with_parent, doing
from kit.facts.host.read import Json, Unreadable, fact

_FRACTION = 0.95
"""Of what is free: the driver needs a little for itself."""
_ROUNDS = 16
"""Some five seconds a GPU."""
_WORDS = GIB // 8


@contextmanager
def _chunks(gpu: Gpu) -> Iterator[list[int]]:
    """Addresses of one GiB each, an even number of them."""
    taken: list[int] = []
    try:
        for _ in range(int(gpu.memory()[0] * _FRACTION) // GIB // 2 * 2):
            taken.append(gpu.allocate(GIB))
        yield taken
    finally:
        for address in taken:
            attempt(gpu.free, address)


def _fill(gpu: Gpu, chunks: list[int], pattern: Pattern, seed: int) -> None:
    for number, address in enumerate(chunks):
        gpu.fill(address, GIB, pattern, seed, number * _WORDS)


def _compare(gpu: Gpu, chunks: list[int], pattern: Pattern, seed: int) -> None:
    for number, address in enumerate(chunks):
        gpu.check(address, GIB, pattern, seed, number * _WORDS)


def _copy(gpu: Gpu, sources: list[int], targets: list[int]) -> None:
    for source, target in zip(sources, targets):
        gpu.copy(target, source, GIB)


def _check(gpu: Gpu, clocks: Clocks) -> Json:
    began = time.monotonic()
    doing(f"GPU {gpu.ordinal} {gpu.bus_id} memory: taking it")
    before, total = clocks.sm_mhz(gpu.bus_id), gpu.memory()[1]
    filled, compared, copied = [], [], []
    with _chunks(gpu) as chunks:
        lower, upper = chunks[: len(chunks) // 2], chunks[len(chunks) // 2 :]
        if not upper:
            raise Unreadable(f"no memory is free: {gpu.memory()[0] >> 20} MiB")
        for number in range(1, _ROUNDS + 1):
            if number % 4 == 1:
                doing(f"GPU {gpu.ordinal} {gpu.bus_id} memory: round {number} of {_ROUNDS}, {len(chunks)} GiB")
            seed = number << 40
            for pattern in PATTERNS:
                filled.append(gpu.timed(_fill, gpu, chunks, pattern, seed))
                compared.append(gpu.timed(_compare, gpu, chunks, pattern, seed))
            _fill(gpu, lower, ADDRESS, seed)
            copied.append(gpu.timed(_copy, gpu, lower, upper))
            _compare(gpu, upper, ADDRESS, seed)
        wrong, first = gpu.wrong()
        after = clocks.sm_mhz(gpu.bus_id)
        size = len(chunks) * GIB
    return {
        "total_mib": total >> 20,
        "tested_mib": size >> 20,
        "patterns": [pattern.name for pattern in PATTERNS],
        "rounds": _ROUNDS,
        "wrong_words": wrong,
        "first_wrong_byte": None if first is None else first * 8,
        "filled": figure(size, filled),
        "compared": figure(size, compared),
        "copied": figure(size, copied),
        "sm_mhz_before": before,
        "sm_mhz_after": after,
        "seconds": round(time.monotonic() - began, 2),
    }


def read() -> Json:
    """PCI address -> the check of that GPU, one GPU after another."""
    doing("starting CUDA")
    gpus = every_gpu()
    clocks = Clocks()
    return {gpu.bus_id: attempt(_check, gpu, clocks) for gpu in gpus}


def main() -> int:
    """Child process."""
    die_with_parent()
    return answer(fact(read))
