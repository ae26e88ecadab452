"""Set, read back, record: shared by the scripts that boot units run."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

TOOL_TIMEOUT_S = 60
SETTLE_S = 5.0
"""Clocks and governors follow a write within a second or two, on a busy machine later."""
POLL_S = 0.05

ReadBack = tuple[Any, list[str]]
"""What was read back, and what of it is wrong."""
Part = Callable[[Any, Path], ReadBack]
"""(declared value, root folder) -> what came of it."""


def arguments(argv: list[str]) -> argparse.Namespace:
    """``--config FILE --result FILE [--root /]``."""
    options = argparse.ArgumentParser()
    options.add_argument("--config", required=True, type=Path)
    options.add_argument("--result", required=True, type=Path)
    options.add_argument("--root", default=Path("/"), type=Path)
    return options.parse_args(argv)


def set_parts(argv: list[str], parts: Mapping[str, Part]) -> int:
    """Run every part whose setting is declared (null leaves it alone); one that fails does not hide the others."""
    asked = arguments(argv)
    config = json.loads(asked.config.read_text())
    read_back: dict[str, Any] = {}
    wrong: list[str] = []
    for name, part in parts.items():
        if config.get(name) is None:
            read_back[name] = None
            continue
        try:
            read_back[name], faults = part(config[name], asked.root)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            read_back[name], faults = None, [str(error)]
        wrong += [f"{name}: {fault}" for fault in faults]
    return finish(asked, {"read_back": read_back, "wrong": wrong})


def finish(asked: argparse.Namespace, document: dict[str, Any]) -> int:
    """Record the document with this boot's id, say what is wrong; the exit status. A reader never sees half a file."""
    boot_id = (asked.root / "proc/sys/kernel/random/boot_id").read_text().strip()
    path: Path = asked.result
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        json.dump({"schema_version": 1, "boot_id": boot_id, **document}, file, indent=2, sort_keys=True)
        file.write("\n")
        os.fchmod(file.fileno(), 0o644)
    Path(file.name).replace(path)
    for line in document["wrong"]:
        sys.stderr.write(line + "\n")
    return 1 if document["wrong"] else 0


def read(path: Path) -> str:
    """A one-line kernel file's text."""
    return path.read_text().strip()


def put(path: Path, value: str) -> None:
    """Write a kernel file when it holds something else."""
    if read(path) != value:
        path.write_text(value)


def settled(look: Callable[[], ReadBack]) -> ReadBack:
    """Read back until nothing is wrong, or the time for it is over. A setting may take hold a moment after it was written."""
    deadline = time.monotonic() + SETTLE_S
    while True:
        found, wrong = look()
        if not wrong or time.monotonic() >= deadline:
            return found, wrong
        time.sleep(POLL_S)


def run(argv: list[str]) -> subprocess.CompletedProcess[str]:
    """A tool by argument list, within a time limit. Raises when it fails: the part that needs it then fails."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)
