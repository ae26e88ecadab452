"""kernels.build, kernels.test, kernels.bench: what the command line calls. Functions that return an Outcome, no printing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kit import paths
from kit.errors import ExitCode, Failure, KitError, failure
from kit.outcome import Outcome

from . import build as _build
from . import wheel as _wheel

ROOT = _build.HERE.parent
_NO_GPU = "GPU tests: no CUDA device or no library here"
_NO_ENGINE = "the plugin in the real engine: no engine here (make serve-venv)"


def build(arch: str) -> Outcome:
    """Compiles, links, packs one wheel for ``arch`` (a comma list). Minutes at first, seconds when unchanged.

    Raises KitError (apply_failed) with the compiler's words, for no nvcc and for an unknown architecture.
    """
    said: list[str] = []
    try:
        architectures = _build.architectures(arch)
        library = _build.build(architectures, say=said.append)
        wheel = _wheel.make(library, _build.OUT / "dist")
    except _build.BuildError as error:
        where = f"invoke kernels.build --arch {arch}"
        raise KitError(failure("kernels.build", where, "a library", str(error)), ExitCode.APPLY_FAILED) from error
    result = {"library": str(library), "wheel": str(wheel), "architectures": list(architectures), "steps": said}
    return Outcome("kernels.build", result=result, text="\n".join([*said, f"{wheel} ({', '.join(architectures)})"]))


def test(require_gpu: bool, python: str) -> Outcome:
    """References anywhere, GPU tests where a GPU is; what did not run is told, and fails with ``require_gpu``.

    ``python``: one that has torch and numpy (kernels/requirements.lock); this one otherwise.
    """
    environment = {**os.environ, **({"B300KIT_REQUIRE_GPU": "1"} if require_gpu else {})}
    engine = (paths.cache_dir() / "serve-venv" / "bin" / "python").is_file()
    command = [
        python or sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rs",
        "kernels",
        "tests/kernels",
        *(() if engine else ("-m", "not serve")),
    ]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    absent = [line.strip() for line in output.splitlines() if "kernels: NOT collected" in line]
    skipped = tuple(absent) + ((_NO_GPU,) if "no CUDA device" in output or "no kernel library" in output else ())
    skipped += () if engine else (_NO_ENGINE,)
    failures: list[Failure] = []
    if done.returncode != 0:
        failures.append(
            failure("kernels.test", " ".join(command), "every test passes", f"exit {done.returncode}", "see the output")
        )
    elif require_gpu and (absent or _NO_GPU in skipped):
        failures.append(failure("kernels.test", " ".join(command), "GPU tests", "; ".join(skipped), "run it where a GPU is"))
    return Outcome(
        "kernels.test",
        result={"exit": done.returncode, "last": (output.strip().splitlines() or ["no output"])[-1]},
        failures=tuple(failures),
        skipped=skipped,
        exit_code=ExitCode.GATE_FAILED if failures else ExitCode.OK,
        text=output.strip(),
    )


def bench(out: str, python: str) -> Outcome:
    """Tests, then ours beside the peers, T = 1, 6, 8, on this machine's GPU; ``out`` gets results.json.

    An operator with a failed test is not timed, and that fails. Raises KitError (refused) where there is no GPU.
    """
    folder, interpreter = Path(out).absolute(), python or sys.executable
    probe = "import torch; raise SystemExit(0 if torch.cuda.is_available() else 3)"
    found = subprocess.run([interpreter, "-c", probe], capture_output=True, text=True, check=False)
    if found.returncode != 0:
        why = (
            "no CUDA device" if found.returncode == 3 else (found.stderr.strip().splitlines() or ["torch cannot be imported"])[-1]
        )
        raise KitError(
            failure("kernels.bench", interpreter, "torch with a CUDA device", why, "run it on a machine with a GPU"),
            ExitCode.REFUSED,
        )
    command = [interpreter, "-m", "kernels.device_run", str(folder), "--chains"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    written = folder / "results.json"
    document: dict[str, Any] = json.loads(written.read_text()) if written.is_file() else {}
    failures: tuple[Failure, ...] = ()
    if done.returncode != 0:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-20:])
        failures = (failure("kernels.bench", " ".join(command), "every operator tested and timed", said),)
    return Outcome(
        "kernels.bench",
        result=document,
        failures=failures,
        exit_code=ExitCode.GATE_FAILED if failures else ExitCode.OK,
        text=done.stdout.strip(),
    )
