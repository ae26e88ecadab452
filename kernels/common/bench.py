"""Timing: microseconds of one call inside a CUDA graph of many, every contender measured in turn in the same run."""

from __future__ import annotations

import datetime
import statistics
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch

L2_BYTES = 60e6
ROWS = (1, 6, 8)


@dataclass(frozen=True)
class Case:
    """One contender: ``call(i)`` does the work with the i-th copy of the weights. ``kind``: ours, sglang, torch."""

    kernel: str
    rows: int
    name: str
    kind: str
    launches: int
    call: Callable[[int], object]
    copies: int = 1
    note: str = ""


@dataclass(frozen=True)
class Figure:
    """us: median over rounds of one call; low and high: the extreme rounds."""

    kernel: str
    rows: int
    name: str
    kind: str
    launches: int
    us: float
    low: float
    high: float
    note: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


def copies_past_l2(size: int) -> int:
    """How many copies of ``size`` bytes of weights exceed twice the L2 cache; at most 80, one a sublayer of the model."""
    return max(2, min(80, int(2 * L2_BYTES / size) + 1))


def capture(case: Case, calls: int) -> torch.cuda.CUDAGraph:
    """A graph of ``calls`` calls, warmed up on the same stream (workspaces and compilers want that)."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(min(case.copies, 3)):
            case.call(i)
        stream.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                case.call(i % case.copies)
    return graph


def measure(cases: Sequence[Case], rounds: int = 15, replays: int = 3) -> list[Figure]:
    """Times all cases in turn, ``rounds`` times over; a case that cannot run is reported with its error, never dropped."""
    graphs: list[tuple[Case, torch.cuda.CUDAGraph, int]] = []
    failed: list[Figure] = []
    for case in cases:
        calls = max(case.copies, 80 // case.copies * case.copies)
        try:
            graphs.append((case, capture(case, calls), calls))
        except Exception as error:  # noqa: BLE001  (a peer's failure is a result of this run)
            nan = float("nan")
            text = f"not measured: {type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"
            failed.append(Figure(case.kernel, case.rows, case.name, case.kind, case.launches, nan, nan, nan, text))
    times: list[list[float]] = [[] for _ in graphs]
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for turn in range(rounds + 2):
        for samples, (_, graph, calls) in zip(times, graphs, strict=True):
            graph.replay()
            start.record()
            for _ in range(replays):
                graph.replay()
            end.record()
            end.synchronize()
            if turn >= 2:  # the first two rounds warm the clocks up
                samples.append(start.elapsed_time(end) * 1e3 / (replays * calls))
    done = [
        Figure(
            c.kernel,
            c.rows,
            c.name,
            c.kind,
            c.launches,
            round(statistics.median(t), 3),
            round(min(t), 3),
            round(max(t), 3),
            c.note,
        )
        for t, (c, _, _) in zip(times, graphs, strict=True)
    ]
    return done + failed


def provenance() -> dict[str, Any]:
    """Where and when: GPU, driver, clocks, versions."""
    query = "name,driver_version,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    found = subprocess.run(
        ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"], capture_output=True, text=True, check=False
    )
    values = [value.strip() for value in (found.stdout.splitlines() or [""])[0].split(",")]
    state = dict(zip(query.split(","), values, strict=False))
    import triton

    properties = torch.cuda.get_device_properties(0)
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **state,
        "sm_count": properties.multi_processor_count,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "method": "median over rounds; one call of a CUDA graph of ~80, all contenders in turn; "
        "weights rotated past L2 where they are large enough, activations warm in L2",
    }


def table(figures: Sequence[Figure]) -> str:
    """The figures as text, one line a contender, columns by rows."""
    rows = sorted({f.rows for f in figures})
    lines = []
    for kernel in dict.fromkeys(f.kernel for f in figures):
        lines.append(f"{kernel:38} {'launches':>8} " + " ".join(f"T={r:<8}" for r in rows))
        of = [f for f in figures if f.kernel == kernel]
        for name in dict.fromkeys(f.name for f in of):
            mine = {f.rows: f for f in of if f.name == name}
            first = next(iter(mine.values()))
            cells = " ".join(f"{mine[r].us:<10.2f}" if r in mine else f"{'-':10}" for r in rows)
            lines.append(f"  {first.kind:6} {name:29} {first.launches:>8} {cells} {first.note[:90]}")
    return "\n".join(lines)


def as_json(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    """For the results file; NaN as null."""
    return [{k: (None if v != v else v) for k, v in asdict(f).items()} for f in figures]
