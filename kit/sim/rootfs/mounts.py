"""Put layers together into one root: an overlay mount, or a copy where the kernel refuses one."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from kit.sim.commands import run, succeeds


def is_mounted(target: Path, mountinfo: str) -> bool:
    """Whether something is mounted exactly there; pure, from the text of ``/proc/self/mountinfo``."""
    wanted = str(target)
    return any(line.split()[4].replace("\\040", " ") == wanted for line in mountinfo.splitlines())


def compose(lower: Sequence[Path], upper: Path, target: Path) -> bool:
    """Make `target` show `upper` over the `lower` layers (top-most first), writable; writes stay in `upper`.

    Where overlays do not work (a control machine that is itself a container on one), `target` becomes a copy.
    Returns whether it is an overlay.
    """
    work = upper.with_name(f"{upper.name}.work")
    for folder in (upper, work, target):
        folder.mkdir(parents=True, exist_ok=True)
    layers = ":".join(str(path) for path in lower)
    options = f"lowerdir={layers},upperdir={upper},workdir={work}"
    if succeeds(["mount", "-t", "overlay", "overlay", "-o", options, target]):
        return True
    for layer in (*reversed(lower), upper):
        run(["cp", "--archive", "--reflink=auto", f"{layer}/.", target], timeout_s=600)
    return False


def release(target: Path) -> None:
    """Unmount `target` if it is mounted; a copy is left for its owner to delete."""
    while is_mounted(target, Path("/proc/self/mountinfo").read_text()):
        run(["umount", target])


def delete(folder: Path) -> None:
    """Remove a folder that may hold a mounted root, whole. Never descends into a mount."""
    release(folder / "root")
    if folder.exists():
        shutil.rmtree(folder)
