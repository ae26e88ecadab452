"""Puts each scheduler of the engine on its seat, by process title, and looks after it. Runs on the host."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

EVERY_S = 0.5
TITLE = "sglang::"


def titles() -> dict[int, str]:
    """PID -> title, of SGLang's processes."""
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            title = (process / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
        except OSError:
            continue
        if title.startswith(TITLE):
            found[int(process.name)] = title
    return found


def pin(pid: int, cpus: set[int]) -> int:
    """Threads that had to be moved. A thread that has just ended is none."""
    moved = 0
    try:
        threads = [int(task.name) for task in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return 0
    for thread in threads:
        try:
            if os.sched_getaffinity(thread) != cpus:
                os.sched_setaffinity(thread, cpus)
                moved += 1
        except ProcessLookupError:
            continue
    return moved


def main() -> None:
    """Once for each process when it appears; what is moved later by somebody else is told and put back."""
    declared = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    seats = {title: set(cpus) for title, cpus in declared["seats"].items()}
    known: set[int] = set()
    while True:
        for pid, title in titles().items():
            cpus = seats.get(title)
            if cpus is None:
                continue
            moved = pin(pid, cpus)
            if moved:
                word = "moved back" if pid in known else "pinned"
                sys.stdout.write(f"{title} ({pid}): {moved} threads {word} to CPUs {sorted(cpus)}\n")
                sys.stdout.flush()
            known.add(pid)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
