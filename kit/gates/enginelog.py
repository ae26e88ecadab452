"""What an engine's log says about each rank. Pure: text in. The lines are SGLang's own; see where each comes from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

RANK = re.compile(r"\[[^\]]*?\bTP(\d+)\b[^\]]*\]")
# sglang/srt/kernel_plugins/nvidia/binding.py: install_megakernel, _CaptureCheck
ACTIVE = re.compile(r"NVIDIA megakernel: active \((?P<spec>[^:]+): (?P<summary>.*?); widths (?P<widths>\[[^\]]*\]);")
GRAPHS = re.compile(
    r"NVIDIA megakernel: (?P<spec>.+?) runs the decode graphs of batch sizes \[(?P<sizes>[^\]]*)\] \((?P<n>\d+) of (?P<m>\d+)\)"
)
PLUGIN_FAILED = re.compile(r"Failed to (?:load|execute)\b.*plugin.*")
# sglang/srt/model_executor/model_runner_components/cuda_graph_setup.py
CAPTURED = re.compile(r"Capture (?P<what>.*?) ?CUDA graph end\.")
READY = "The server is fired up and ready to roll"
PHASES: Mapping[str, re.Pattern[str]] = {
    "weights": re.compile(r"Load weight begin"),
    "memory": re.compile(r"Load weight end|Memory pool"),
    "graphs": re.compile(r"Capture .*CUDA graph begin"),
    "warm_up": re.compile(r"Uvicorn running on|Application startup complete"),
    "ready": re.compile(re.escape(READY)),
}
TIME = re.compile(r"\[(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class RankLog:
    """What one rank said."""

    active: str | None = None
    """The plugin's own words."""
    routed: int | None = None
    """Decode graphs that run the megakernel."""
    captured: int | None = None
    """Decode graphs in all, as the same line counts them."""
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class EngineLog:
    """The whole log of one start."""

    ranks: Mapping[int, RankLog] = field(default_factory=dict)
    plugin_failures: tuple[str, ...] = ()
    """A plugin that fails is logged and skipped: the engine goes on without it."""
    ready: bool = False
    phases: Mapping[str, str] = field(default_factory=dict)
    """Phase -> the engine's own time stamp of its first line."""


def read(text: str) -> EngineLog:
    """Parse; a line without a rank belongs to rank 0, the only one when there is no tensor parallelism."""
    ranks: dict[int, RankLog] = {}
    failures: list[str] = []
    phases: dict[str, str] = {}
    ready = False
    for line in text.splitlines():
        head = RANK.search(line)
        rank = int(head[1]) if head else 0
        known = ranks.get(rank, RankLog())
        if found := ACTIVE.search(line):
            words = f"{found['spec']}: {found['summary']}"
            ranks[rank] = RankLog(words, known.routed, known.captured, known.sizes)
        elif found := GRAPHS.search(line):
            sizes = tuple(int(part) for part in found["sizes"].split(",") if part.strip())
            ranks[rank] = RankLog(known.active, int(found["n"]), int(found["m"]), sizes)
        elif PLUGIN_FAILED.search(line):
            failures.append(line.strip())
        ready |= READY in line
        stamp = TIME.search(line)
        if stamp:
            for phase, pattern in PHASES.items():
                if phase not in phases and pattern.search(line):
                    phases[phase] = stamp[1]
    return EngineLog(ranks, tuple(failures), ready, phases)
