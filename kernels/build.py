"""Builds the shared library: one object a source file, both architectures in each, one at a time.

``commands`` is pure; ``build`` runs it, skips what has not changed, and verifies that each architecture is in the result.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
OUT = HERE.parent / ".cache" / "kernels"
LIBRARY = "libb300kit_kernels.so"
SOURCES = (
    "common/api.cu",
    "boundary/boundary.cu",
    "stats/stats.cu",
    "gate/gate.cu",
    "qkv/qkv.cu",
    "qkvproj/qkvproj.cu",
    "oproj/oproj.cu",
    "gemv/gemv.cu",
    "head/head.cu",
    "agree/agree.cu",
    "draw/draw.cu",
)
HEADERS = ("common/api.h", "common/device.cuh", "common/stream.cuh", "gemv/write.cuh")
ARCHITECTURES = ("sm_90a", "sm_103a")
FLAGS = ("-std=c++17", "-O3", "-lineinfo", "-Xcompiler", "-fPIC,-Wall,-Wextra", "-Werror", "all-warnings", "-Xptxas", "-v")


class BuildError(RuntimeError):
    """The build cannot go on; the text says where, what was expected, what was found, and what to do."""


@dataclass(frozen=True)
class Step:
    """One compiler call: its argv, what it reads, what it makes."""

    argv: tuple[str, ...]
    inputs: tuple[Path, ...]
    output: Path


def find_nvcc() -> Path:
    """nvcc 13 of the machine (NVCC, PATH, /usr/local) or of the PyPI package nvidia-cuda-nvcc. Raises BuildError."""
    named = os.environ.get("NVCC")
    places = [named, shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    places += [str(Path(p) / "nvidia" / "cu13" / "bin" / "nvcc") for p in sys.path]
    for place in places:
        if place and Path(place).is_file():
            return Path(place)
    raise BuildError(
        "nvcc: expected in NVCC, PATH, /usr/local/cuda or the package nvidia-cuda-nvcc; found none; install CUDA 13.0"
    )


def architectures(text: str) -> tuple[str, ...]:
    """ "sm_90a,sm_103a" as a tuple; raises BuildError for one that the kernels are not written for."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    bad = [name for name in names if name not in ARCHITECTURES]
    if bad or not names:
        raise BuildError(f"--arch: expected some of {', '.join(ARCHITECTURES)}; found {text!r}")
    return names


def commands(nvcc: Path, archs: Sequence[str], out: Path, root: Path = HERE) -> list[Step]:
    """The compile steps and the link step, in order."""
    codes = tuple(f"-gencode=arch=compute_{a.removeprefix('sm_')},code={a}" for a in archs)
    headers = tuple(root / header for header in HEADERS)
    steps = []
    for source in SOURCES:
        target = out / (Path(source).stem + ".o")
        argv = (str(nvcc), *FLAGS, *codes, "-c", str(root / source), "-o", str(target))
        steps.append(Step(argv, (root / source, *headers), target))
    objects = tuple(step.output for step in steps)
    link = (str(nvcc), *codes, "-shared", "-Xlinker", "--no-undefined", *(str(o) for o in objects), "-o", str(out / LIBRARY))
    return [*steps, Step(link, objects, out / LIBRARY)]


def _stamp(step: Step) -> str:
    digest = hashlib.sha256(json.dumps(step.argv).encode())
    for path in step.inputs:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def contained(library: Path, archs: Sequence[str]) -> dict[str, bool]:
    """Whether each architecture's code is in the library: nvcc writes the target's name in each embedded cubin."""
    data = library.read_bytes()
    return {arch: arch.encode() in data for arch in archs}


def build(archs: Sequence[str], out: Path = OUT, say: Callable[[str], None] = print) -> Path:
    """Compiles what changed and links; returns the library. Raises BuildError with the compiler's words."""
    out.mkdir(parents=True, exist_ok=True)
    nvcc = find_nvcc()
    for step in commands(nvcc, archs, out):
        mark = step.output.with_suffix(step.output.suffix + ".stamp")
        stamp = _stamp(step)
        if step.output.is_file() and mark.is_file() and mark.read_text() == stamp:
            say(f"unchanged {step.output.name}")
            continue
        say(f"building {step.output.name} for {', '.join(archs)}")
        done = subprocess.run(step.argv, capture_output=True, text=True, check=False)
        log = done.stdout + done.stderr
        step.output.with_suffix(step.output.suffix + ".log").write_text(log)
        if done.returncode != 0:
            raise BuildError(f"{step.output.name}: expected nvcc to succeed; found exit {done.returncode}:\n{log}")
        spills = [
            line
            for line in log.splitlines()
            if "spill" in line and not line.strip().startswith("0 bytes stack frame, 0 bytes spill")
        ]
        for line in spills:
            say(f"note {step.output.name}: {line.strip()}")
        mark.write_text(stamp)
    library = out / LIBRARY
    missing = [arch for arch, there in contained(library, archs).items() if not there]
    if missing:
        raise BuildError(f"{library}: expected code for {', '.join(archs)}; found none for {', '.join(missing)}")
    return library
