"""Launch choices: a pure function of the problem and the GPU, tested without one.

Results never depend on the choice (tests run every kernel at several grids); only time does. A tuned table is a file with
provenance; it is used only where it matches, and what happened is said aloud by ``load_table``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STATS_ITEMS = 120  # items of an 8-row tile (40 slices x 3 groups)
GATE_PARTS = 16  # clusters of an 8-row tile
ROW_TILE = 8
CLUSTERS = (1, 2, 4, 5)
GEMV_ROWS = 8  # of every kernel that streams a weight: gemv, qkvproj, oproj, head
GEMV_UNIT = 32  # N is a multiple of this
GEMV_K = (512, 1024, 1280, 2048, 2304, 4096, 5120, 8192)  # gemv.cu is built for these
STREAMS = ("gemv", "qkvproj", "oproj", "head")


@dataclass(frozen=True)
class Gpu:
    """What a launch choice may depend on."""

    name: str
    capability: int  # 10*major + minor
    sm_count: int


@dataclass(frozen=True)
class Launch:
    """``blocks`` counts clusters where ``cluster`` > 1 (and for the gate, whose cluster is 8)."""

    blocks: int
    cluster: int = 1
    pdl: bool = True


@dataclass(frozen=True)
class Table:
    """Measured choices for one GPU; ``entries[op]`` maps the largest row count of a range to a launch."""

    entries: Mapping[str, tuple[tuple[int, Launch], ...]] = field(default_factory=dict)
    note: str = "no table: built-in choices"


def tiles(rows: int) -> int:
    """8-row tiles of ``rows`` rows."""
    return -(-rows // ROW_TILE)


def choose(op: str, rows: int, gpu: Gpu, table: Table | None = None) -> Launch:
    """The launch of ``op`` for ``rows`` >= 1 rows. Raises ValueError for an unknown operator or no rows."""
    if rows < 1:
        raise ValueError(f"{op}: a launch needs at least one row, found {rows}")
    for limit, launch in table.entries.get(op, ()) if table else ():
        if rows <= limit:
            return launch
    if op == "boundary":
        # Few rows: spread one over several SMs (5 measured best of 1, 2, 4, 5). Many rows fill the chip one block each.
        return Launch(blocks=rows, cluster=5 if rows * 4 <= 2 * gpu.sm_count else 1)
    if op == "stats":
        return Launch(blocks=min(STATS_ITEMS * tiles(rows), 4 * gpu.sm_count))
    if op == "gate":
        # At most four blocks of 320 threads on an SM; a cluster is eight blocks.
        return Launch(blocks=min(GATE_PARTS * tiles(rows), max(1, 4 * gpu.sm_count // 8)), cluster=8)
    if op == "qkv":
        return Launch(blocks=min(2 * rows, 8 * gpu.sm_count))
    if op in STREAMS:
        return Launch(blocks=gpu.sm_count)  # one persistent block an SM; the kernel takes fewer where there is less to do
    raise ValueError(f"unknown operator {op!r}")


def gemv_fits(n: int, k: int) -> None:
    """Raises ValueError where gemv has no kernel for W [n, k]. How its sums are split follows from k alone."""
    if n < GEMV_UNIT or n % GEMV_UNIT or k not in GEMV_K:
        raise ValueError(f"N a multiple of {GEMV_UNIT}, K one of {', '.join(map(str, GEMV_K))}")


def load_table(path: Path, gpu: Gpu, driver: str) -> Table:
    """The table in ``path`` when its provenance matches this GPU and driver, else an empty one whose note says why.

    The caller prints the note: production once ran with an empty table and nobody was told.
    """
    if not path.is_file():
        return Table(note=f"{path}: no such table; built-in choices are used")
    try:
        document: dict[str, Any] = json.loads(path.read_text())
        provenance = document["provenance"]
        entries = {
            op: tuple(
                (int(e["rows_to"]), Launch(int(e["blocks"]), int(e.get("cluster", 1)), bool(e.get("pdl", True)))) for e in rows
            )
            for op, rows in document["entries"].items()
        }
        found = (provenance["gpu"], int(provenance["sm_count"]), provenance["driver"])
        measured = f"{provenance['date']}, SM clock {provenance['sm_clock_mhz']} MHz"
    except (KeyError, TypeError, ValueError) as error:
        return Table(note=f"{path}: not a table ({type(error).__name__}: {error}); built-in choices are used")
    wanted = (gpu.name, gpu.sm_count, driver)
    if found != wanted:
        return Table(note=f"{path}: measured on {found}, this is {wanted}; built-in choices are used")
    if not any(entries.values()):
        return Table(note=f"{path}: the table is empty; built-in choices are used")
    for rows_of in entries.values():
        limits = [limit for limit, _ in rows_of]
        bad = [launch for _, launch in rows_of if launch.blocks < 1 or launch.cluster < 1]
        if limits != sorted(limits) or bad:
            return Table(note=f"{path}: ranges out of order or a launch below 1; built-in choices are used")
    return Table(entries, note=f"{path}: tuned choices for {', '.join(sorted(entries))} ({measured})")
