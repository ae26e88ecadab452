"""Compile the NVML, CUDA and NCCL stubs on the control machine.

Not in the guest: a compiler there would triple the root file system. The control machine's libc may be newer than the
guest's, so the stubs use old symbols only, and the result is checked for newer ones.
"""

from __future__ import annotations

import re
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.sim.commands import run

STUBS = Path(__file__).resolve().parent.parent / "stubs"
GUEST_LIBC = (2, 36)
"""Of Debian 12."""
LIBRARIES = {
    "libnvidia-ml.so.1": ("hardware.c", "nvml.c", "nvml_read.c", "nvml_write.c"),
    "libcuda.so.1": ("hardware.c", "cuda.c", "cuda_work.c"),
    "libnccl.so.2": ("hardware.c", "nccl.c"),
}
_NCCL = "2.28.3"


def file_name(library: str, driver: str) -> str:
    """What the link of that name points to: the driver's libraries carry its version. Pure."""
    stem = library.rsplit(".", 1)[0]
    return f"{stem}.{_NCCL if library == 'libnccl.so.2' else driver}"


def newest_libc(symbols: str) -> tuple[int, ...]:
    """Highest ``GLIBC_x.y`` among the symbols that ``objdump -T`` lists; pure."""
    versions = [tuple(int(n) for n in found.split(".")) for found in re.findall(r"GLIBC_([0-9.]+)", symbols)]
    return max(versions, default=(0,))


def build(folder: Path) -> None:
    """Put the libraries into `folder`. Raises KitError(INTERNAL, ``sim.stub_libc``) when the guest could not load one."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, sources in LIBRARIES.items():
        target = folder / name
        run(
            [
                "gcc", "-std=c11", "-O1", "-Wall", "-Wextra", "-fPIC", "-shared", f"-Wl,-soname,{name}", "-o", target,
                *(STUBS / source for source in sources),
            ]
        )  # fmt: skip
        newest = newest_libc(run(["objdump", "-T", target]))
        if newest > GUEST_LIBC:
            expected, step = f"symbols of libc {'.'.join(map(str, GUEST_LIBC))} or older", "report it with this machine's gcc"
            raise KitError(failure("sim.stub_libc", name, expected, ".".join(map(str, newest)), step), ExitCode.INTERNAL)
