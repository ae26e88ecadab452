"""Reads an engine on a host: what runs, with which variables, on which CPUs. Sent to it as text; standard library alone.

Arguments: the unit's main PID. Prints one JSON document; null is what could not be read.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

TITLE = "sglang::"
KEPT = re.compile(r"^(SGLANG|NCCL|GLOO|TORCH|TORCHDYNAMO|OMP|B300KIT|HF|TRANSFORMERS)_|^SYNC_TOKEN_IDS_ACROSS_TP$")
SECRET = re.compile(r"KEY$|TOKEN$|SECRET|PASSWORD")
EDGE = 1 << 20


def quietly(read: Any, *given: Any) -> Any:
    """The answer, or None."""
    try:
        return read(*given)
    except (OSError, ValueError, IndexError, KeyError):
        return None


def environment(pid: int) -> dict[str, str]:
    """Variables that matter, no secret."""
    pairs = (e.decode(errors="replace").partition("=") for e in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if e)
    return {name: value for name, _, value in pairs if KEPT.search(name) and not SECRET.search(name)}


def looks() -> list[dict[str, Any]]:
    """Affinity of every thread of SGLang's processes."""
    out = []
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            title = (process / "cmdline").read_bytes().split(b"\0")[0].decode(errors="replace").strip()
            if title.startswith(TITLE):
                threads = [sorted(os.sched_getaffinity(int(task.name))) for task in (process / "task").iterdir()]
                out.append({"at_s": time.monotonic(), "process": title, "threads": threads})
        except OSError:
            continue
    return out


def weights(folder: Path) -> str:
    """As kit.gates.gather.weights."""
    digest = hashlib.sha256()
    for path in sorted(entry for entry in folder.iterdir() if entry.is_file()):
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= 16 * EDGE:
                digest.update(file.read())
            else:
                digest.update(file.read(EDGE))
                file.seek(-EDGE, os.SEEK_END)
                digest.update(file.read(EDGE))
    return digest.hexdigest()


def main() -> None:
    """One document."""
    pid = int(sys.argv[1])
    settings = quietly(lambda: json.loads(Path("/etc/b300kit/engine.json").read_text()))
    argv = quietly(lambda: Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1])
    out = {
        "boot_id": quietly(lambda: Path("/proc/sys/kernel/random/boot_id").read_text().strip()),
        "settings": settings,
        "arguments": [word.decode(errors="replace") for word in argv] if argv else None,
        "environment": quietly(environment, pid),
        "looks": looks(),
        "weights_sha256": quietly(lambda: weights(Path(settings["model_path"]))) if settings and len(sys.argv) > 2 else None,
        "membership": quietly(lambda: json.loads(Path("/var/lib/b300kit/membership.json").read_text())),
    }
    sys.stdout.write(json.dumps(out))


if __name__ == "__main__":
    main()
