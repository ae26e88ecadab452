"""Commands on the fused kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.cli.command import command

if TYPE_CHECKING:
    from kit.outcome import Outcome

_TORCH_PYTHON = "A Python with torch and numpy; this one otherwise."


@command(help={"arch": "Comma list of sm_90a (Hopper), sm_103a (B300)."})
def kernels_build(arch: str = "sm_90a,sm_103a") -> Outcome:
    """Compile the kernels and pack one wheel."""
    from kernels import tasks_api

    return tasks_api.build(arch)


@command(help={"require_gpu": "Fail where a GPU test cannot run.", "python": _TORCH_PYTHON})
def kernels_test(require_gpu: bool = False, python: str = "") -> Outcome:
    """Test the kernels: references; GPU tests where one is."""
    from kernels import tasks_api

    return tasks_api.test(require_gpu, python)


@command(help={"out": "Folder for results.json.", "python": _TORCH_PYTHON})
def kernels_bench(out: str = "runs/kernels-bench", python: str = "") -> Outcome:
    """Time the kernels beside their peers on this machine's GPU."""
    from kernels import tasks_api

    return tasks_api.bench(out, python)
