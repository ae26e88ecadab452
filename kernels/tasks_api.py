"""What the command line calls: kernels.build, kernels.test, kernels.bench. Plain functions, no printing, no exit."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import build as _build
from . import wheel as _wheel

ROOT = _build.HERE.parent
RESULTS = _build.HERE / "results"


def build(arch: str = "sm_90a,sm_103a", say: Callable[[str], None] = print) -> dict[str, Any]:
    """kernels.build --arch: compiles, links, packs one wheel. Returns {"library", "wheel", "architectures"}.

    Raises build.BuildError (no nvcc, unknown architecture, the compiler's words). Minutes at first, seconds when unchanged.
    """
    archs = _build.architectures(arch)
    library = _build.build(archs, say=say)
    return {"library": str(library), "wheel": str(_wheel.make(library, _build.OUT / "dist")), "architectures": list(archs)}


def test(require_gpu: bool = False, extra: tuple[str, ...] = ()) -> tuple[int, str]:
    """kernels.test: CPU references anywhere, GPU tests where a GPU is. Returns (pytest's exit code, its output).

    ``require_gpu``: a missing GPU or library fails instead of being skipped. Without torch nothing of kernels/ is collected
    (its conftest says so) and only tests/kernels runs.
    """
    import os

    environment = {**os.environ, **({"B300KIT_REQUIRE_GPU": "1"} if require_gpu else {})}
    command = [sys.executable, "-m", "pytest", "-q", "kernels", "tests/kernels", *extra]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def bench(out: Path, options: tuple[str, ...] = ("--chains",)) -> tuple[int, dict[str, Any] | None]:
    """kernels.bench: tests, then times ours beside the peers, on the machine's GPU. Returns (exit code, results document).

    Not 0 when a test failed (that operator is not timed) or there is no GPU; the document is None when none was written.
    """
    command = [sys.executable, "-m", "kernels.device_run", str(out), *options]
    done = subprocess.run(command, cwd=ROOT, check=False)
    found = out / "results.json"
    return done.returncode, json.loads(found.read_text()) if found.is_file() else None
