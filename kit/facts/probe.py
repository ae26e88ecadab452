"""The probe's text: one script for ``python3 -I - REQUEST`` on a host, made of the modules under ``kit/facts/host/``.

``python -m kit.facts.probe`` prints it, so that it can be read, or run by hand:
``python -m kit.facts.probe | ssh HOST sudo python3 -I - "$(python -m kit.facts.probe --request)"``.
"""

from __future__ import annotations

import sys

from kit.facts.host import bundle
from kit.facts.request import ProbeRequest

COMMAND = ("python3", "-I", "-")
"""``-I``: neither the environment nor the working directory of the host can slip a module in."""


def probe_script() -> bytes:
    """Reads the facts: read-only. Argument: :meth:`ProbeRequest.encoded`. Prints one JSON document."""
    return bundle.script("main")


def cores_script(program: dict[str, str] | None) -> bytes:
    """Measures core speeds. Argument: ``{"budget_s": seconds}`` in base64 JSON. Prints ``measured`` and ``notes``, or
    ``refused``."""
    return bundle.script("cores", program)


def burn_in_script() -> bytes:
    """Loads the GPUs and measures them. Argument: ``{"nccl_library": path or null, "timeout_s": seconds}`` in base64 JSON.
    Prints ``measured``, or ``refused`` with the reasons."""
    return bundle.script("burn_in")


def nccl_script() -> bytes:
    """The all-reduce alone, for wherever NCCL and the CUDA driver are, in the engine's image for one. Argument: NCCL's file.
    It asks nobody whether the GPUs are free: see that they are."""
    return bundle.script("burn_nccl")


if __name__ == "__main__":
    if sys.argv[1:] == ["--request"]:
        sys.stdout.write(ProbeRequest().encoded() + "\n")
    elif sys.argv[1:] == ["--burn-in"]:
        sys.stdout.buffer.write(burn_in_script())
    elif sys.argv[1:] == ["--nccl"]:
        sys.stdout.buffer.write(nccl_script())
    else:
        sys.stdout.buffer.write(probe_script())
