"""When do numbers fall into two classes? Pure.

The rule, on a logarithmic scale so that units do not matter:

1. ``flat``: highest / lowest is at most ``FLAT``.
2. ``split``: cut at the largest gap between neighbours in sorted order; the gap is at least ``GAP``, and at least
   ``DOMINANCE`` times the spread within either side.
3. ``ambiguous``: anything else. A smear has no gap; three classes have a side as wide as the gap.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from kit.cores.model import Answer

FLAT = 1.05
"""A core measured twice in a busy virtual machine differed by up to this."""
GAP = 1.10
DOMINANCE = 2.0


@dataclass(frozen=True)
class Split:
    """Classes of cores by one number each."""

    answer: Answer
    """``split``, ``flat`` or ``ambiguous``."""
    fast: frozenset[int]
    fast_value: float
    """Lowest of the fast class; of all when there is one class."""
    slow_value: float
    """Highest of the slow class; of all when there is one class."""
    text: str


def split(values: Mapping[int, float], unit: str) -> Split:
    """Classes of ``values`` (core -> number, all finite and above 0, at least one)."""
    if not values or not all(math.isfinite(v) and v > 0 for v in values.values()):
        raise ValueError("numbers above zero are needed, at least one")
    ordered = sorted(values.values())
    low, high = ordered[0], ordered[-1]
    if high / low <= FLAT:
        text = (
            f"all {len(values)} at {_number(low)}"
            if high == low
            else f"all {len(values)} between {_number(low)} and {_number(high)}"
        )
        return Split(Answer.FLAT, frozenset(), low, high, f"{text} {unit}".rstrip())
    gap, slow, fast = max((b / a, a, b) for a, b in pairwise(ordered))
    within = max(slow / low, high / fast)
    # A hair of slack: 4600/2300 and a ratio of the same numbers in another unit must not differ by a rounding.
    clear = gap >= GAP and math.log(gap) >= DOMINANCE * math.log(within) - 1e-9
    above = frozenset(core for core, value in values.items() if value >= fast)
    if not clear:
        text = f"from {_number(low)} to {_number(high)} {unit}, widest gap {_number(slow)} to {_number(fast)}: no clear gap"
        return Split(Answer.AMBIGUOUS, frozenset(), low, high, text)
    text = f"{len(above)} at {_range(fast, high)}, {len(values) - len(above)} at {_range(low, slow)} {unit}"
    return Split(Answer.SPLIT, above, fast, slow, text.rstrip())


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _range(low: float, high: float) -> str:
    return _number(low) if _number(low) == _number(high) else f"{_number(low)}-{_number(high)}"
