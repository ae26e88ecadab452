"""What gates ask of the machine under an engine, and the answer for an engine that runs here. Edge: reads /proc.

A host's answers come over ssh, by the same names (kit.gates.gather.host).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from kit.gates.judges import cores, hardware, image

KEPT = re.compile(r"^(SGLANG|NCCL|GLOO|TORCH|TORCHDYNAMO|OMP|B300KIT|HF|TRANSFORMERS)_|^SYNC_TOKEN_IDS_ACROSS_TP$")
SECRET = re.compile(r"KEY|TOKEN$|SECRET|PASSWORD")
TITLE = "sglang::"


class Site(Protocol):
    """None everywhere: could not be read, or this machine has no such thing."""

    name: str

    def log(self) -> str | None:
        """The engine's log of this start."""

    def environment(self) -> Mapping[str, str] | None:
        """Variables of the running engine that matter; no secret."""

    def looks(self) -> tuple[cores.Look, ...] | None:
        """Affinity of every thread of the engine's processes, now."""

    def hardware(self) -> hardware.Evidence | None:
        """GPUs, clocks, fabric, kernel log."""

    def image(self) -> image.Evidence | None:
        """The image's own check."""


class LocalSite:
    """An engine that this machine runs, from its main process and a log file."""

    def __init__(self, name: str, pid: int, log: Path | None, proc: Path = Path("/proc")) -> None:
        self.name = name
        self._pid = pid
        self._log = log
        self._proc = proc

    def log(self) -> str | None:
        try:
            return self._log.read_text(errors="replace") if self._log is not None else None
        except OSError:
            return None

    def environment(self) -> Mapping[str, str] | None:
        try:
            return kept((self._proc / str(self._pid) / "environ").read_bytes())
        except OSError:
            return None

    def looks(self) -> tuple[cores.Look, ...] | None:
        out = []
        for pid in self._family():
            try:
                title = (self._proc / pid / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace")
                if not title.startswith(TITLE):
                    continue
                threads = tuple(
                    tuple(sorted(os.sched_getaffinity(int(task.name)))) for task in (self._proc / pid / "task").iterdir()
                )
            except OSError:
                continue
            out.append(cores.Look(at_s=time.monotonic(), process=title.strip(), threads=threads))
        return tuple(out)

    def hardware(self) -> hardware.Evidence | None:
        return None

    def image(self) -> image.Evidence | None:
        return None

    def _family(self) -> list[str]:
        """The process and its descendants."""
        parents: dict[str, str] = {}
        for entry in self._proc.iterdir():
            if entry.name.isdigit():
                try:
                    parents[entry.name] = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                except OSError:
                    continue
        family = {str(self._pid)}
        while True:
            more = {pid for pid, parent in parents.items() if parent in family} - family
            if not more:
                return sorted(family, key=int)
            family |= more


def kept(environ: bytes) -> dict[str, str]:
    """Of a process's environment what gates look at."""
    pairs = (entry.decode(errors="replace").partition("=") for entry in environ.split(b"\0") if entry)
    return {name: value for name, _, value in pairs if KEPT.search(name) and not SECRET.search(name)}
