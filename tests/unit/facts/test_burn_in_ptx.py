"""The patterns: every word of a block written once, told apart, and each one that differs counted."""

from __future__ import annotations

import pytest

from kit.facts.host import burn_ptx
from kit.facts.host.burn_gpu import ADDRESS, PATTERNS, Pattern

from .ptx import ALL, Memory, run

TEXT = burn_ptx.text().rstrip(b"\0").decode()
AT, RESULT, START, SEED = 1 << 44, 1 << 20, 7 << 27, 3 << 40
WORDS = burn_ptx.BLOCK_BYTES // 8


def arguments(pattern: Pattern) -> dict[str, int]:
    numbers = {"p_at": AT, "p_start": START, "p_seed": SEED, "p_mask": pattern.mask, "p_flip": pattern.flip}
    return {**numbers, "p_result": RESULT}


def fill(pattern: Pattern, blocks: int = 2) -> Memory:
    memory: Memory = {}
    for block in range(blocks):
        for thread in range(burn_ptx.THREADS):
            run(TEXT, burn_ptx.FILL, arguments(pattern), block, thread, memory)
    return memory


def wrong(memory: Memory, pattern: Pattern, blocks: int = 2) -> tuple[int, int]:
    memory = {**memory, RESULT: 0, RESULT + 8: ALL}
    for block in range(blocks):
        for thread in range(burn_ptx.THREADS):
            run(TEXT, burn_ptx.CHECK, arguments(pattern), block, thread, memory)
    return memory[RESULT], memory[RESULT + 8]


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_a_fill_covers_its_range_and_passes_its_check(pattern: Pattern) -> None:
    memory = fill(pattern)
    assert sorted(memory) == [AT + 8 * n for n in range(2 * WORDS)]
    assert wrong(memory, pattern) == (0, ALL)


def test_words_are_what_is_said() -> None:
    memory = fill(ADDRESS, 1)
    for n in (0, 1, 511, 512, 513, WORDS - 1):
        product = (START + n + SEED) * 0x9E3779B97F4A7C15 & ALL
        assert memory[AT + 8 * n] == product ^ product >> 32
    assert fill(PATTERNS[1], 1) == {at: word ^ ALL for at, word in memory.items()}
    assert set(fill(PATTERNS[2], 1).values()) == {0xAAAAAAAAAAAAAAAA}
    assert set(fill(PATTERNS[3], 1).values()) == {0x5555555555555555}


def test_no_two_words_are_alike() -> None:
    """So a stuck address line shows: one word is then read where another was written."""
    assert len(set(fill(ADDRESS).values())) == 2 * WORDS


@pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)
def test_each_bit_that_flips_is_counted_and_the_lowest_is_named(pattern: Pattern) -> None:
    memory = fill(pattern)
    places = (3, 512, WORDS + 1, 2 * WORDS - 1)
    for bit, n in enumerate(places):
        memory[AT + 8 * n] ^= 1 << (21 * bit)
    assert wrong(memory, pattern) == (len(places), START + 3)
