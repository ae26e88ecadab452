"""A kernel budget from a timeline: per kernel count, average and total; buckets by duration; busy time as a union. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

EDGES = (3.0, 6.0, 10.0, 20.0, 50.0)  # us


@dataclass(frozen=True)
class Span:
    """One kernel's run: name, start and end in us."""

    name: str
    start: float
    end: float


def short_name(signature: str) -> str:
    """A kernel's name without return type and arguments: "void (anonymous namespace)::f<3>(int)" is "f<3>"."""
    name = signature.replace("(anonymous namespace)::", "").removeprefix("void ")
    return name.split("(")[0][:80]


def union(spans: Iterable[Span]) -> float:
    """Time in which at least one kernel ran, us."""
    busy, until = 0.0, float("-inf")
    for span in sorted(spans, key=lambda s: s.start):
        busy += max(0.0, span.end - max(span.start, until))
        until = max(until, span.end)
    return busy


def budget(spans: Sequence[Span], layers: int) -> dict[str, Any]:
    """Per layer: kernels, wall (first start to last end), busy, idle, overlap, each kernel's share, buckets. us.

    A kernel launched as a dependent counts from its early start: its own time overlaps the one before (``overlap``).
    """
    if not spans or layers < 1:
        raise ValueError(f"a budget needs kernels and layers, found {len(spans)} and {layers}")
    total = sum(s.end - s.start for s in spans)
    wall, busy = max(s.end for s in spans) - min(s.start for s in spans), union(spans)
    rows = []
    for name in dict.fromkeys(s.name for s in spans):
        own = [s.end - s.start for s in spans if s.name == name]
        rows.append(
            {"kernel": name, "count": len(own) / layers, "average_us": sum(own) / len(own), "total_us": sum(own) / layers}
        )
    bounds = (0.0, *EDGES, float("inf"))
    buckets = {}
    for low, high in itertools.pairwise(bounds):
        own = [s.end - s.start for s in spans if low <= s.end - s.start < high]
        buckets[f"{low:g}-{high:g} us"] = {"count": len(own) / layers, "total_us": sum(own) / layers}
    return {
        "kernels": len(spans) / layers,
        "wall_us": wall / layers,
        "busy_us": busy / layers,
        "idle_us": (wall - busy) / layers,
        "overlap_us": (total - busy) / layers,
        "rows": sorted(rows, key=lambda row: -row["total_us"]),
        "buckets": buckets,
    }
