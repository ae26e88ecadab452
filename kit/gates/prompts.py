"""Pinned prompts: token ids, the same in every run. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import cycle, islice

from kit.gates.declare import Frozen


class Prompts(Frozen):
    """``fleet/prompts/NAME.json``. Made once from text by the model's own tokenizer (`invoke prompts.pin`), then never again."""

    schema_version: int
    about: str
    tokenizer_sha256: str
    """Of the tokenizer's files: ids mean nothing to another one."""
    short: tuple[tuple[int, ...], ...]
    long: tuple[tuple[int, ...], ...]

    def sha256(self) -> str:
        """Part of what a reference is recorded for."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()


def take(prompts: Sequence[tuple[int, ...]], count: int) -> list[tuple[int, ...]]:
    """The first ``count``. Raises ValueError when there are fewer: a prompt is not asked twice in its place."""
    if len(prompts) < count:
        raise ValueError(f"{count} prompts asked for, {len(prompts)} pinned")
    return list(prompts[:count])


def filler(prompts: Sequence[tuple[int, ...]], tokens: int, salt: int) -> tuple[int, ...]:
    """``tokens`` ids of the pinned text, turned by ``salt`` so that no two fillers share a prefix."""
    flat = [token for prompt in prompts for token in prompt]
    turned = flat[salt % len(flat) :] + flat[: salt % len(flat)]
    return tuple(islice(cycle(turned), tokens))
