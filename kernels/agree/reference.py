"""The agreement hash on the CPU, equal to the kernel's to the bit (integers only)."""

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]
I32 = NDArray[np.int32]
HISTORY = 64
STATE_WORDS = 2 + HISTORY  # chain, counter, history


def mix(value: U64) -> U64:
    """splitmix64's step, element by element."""
    with np.errstate(over="ignore"):
        v = value + np.uint64(0x9E3779B97F4A7C15)
        v = (v ^ (v >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        v = (v ^ (v >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return v ^ (v >> np.uint64(31))


def _word(value: I32) -> U64:
    return value.astype(np.uint32).astype(np.uint64)


def step_hash(request_ids: U64, positions: I32, ids: I32, accept: I32, seq_lens: I32, page_delta: U64) -> np.uint64:
    """Hash of one step: arrays [T], ids [T,W]; only the first ``accept`` ids of a row count, and the rows' order does not."""
    with np.errstate(over="ignore"):
        h = mix(_word(positions) + mix(request_ids))
        h = mix(h + _word(accept))
        for i in range(ids.shape[1]):
            h = np.where(i < _word(accept), mix(h + _word(ids[:, i])), h)
        h = mix(h + _word(seq_lens))
        h = mix(h + page_delta)
        total = np.uint64(len(request_ids)) + mix(h).sum(dtype=np.uint64)
        return mix(np.asarray([total], np.uint64))[0]


def advance(state: U64, step: np.uint64) -> U64:
    """The state after one more step; ``state`` [66] is left alone."""
    after = state.copy()
    after[0] = mix(np.asarray([state[0] ^ step], np.uint64))[0]
    after[1] = state[1] + np.uint64(1)
    after[2 + int(after[1]) % HISTORY] = after[0]
    return after


def first_difference(mine: U64, other: U64) -> int | None:
    """The first step (its counter) whose hashes differ in two states' histories; None when the histories agree.

    Both states are of the same counter. When every kept hash differs, the first bad step is at or before the one returned.
    """
    counter = int(mine[1])
    if counter != int(other[1]):
        raise ValueError(f"states of different steps: {counter} and {int(other[1])}")
    for step in range(max(1, counter - HISTORY + 1), counter + 1):
        if mine[2 + step % HISTORY] != other[2 + step % HISTORY]:
            return step
    return None
