"""Put layers together into one root: an overlay mount, or a copy where the kernel refuses one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.sim.commands import run, succeeds
from kit.sim.leftovers import MOUNTINFO, mounts_under


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


def release(folder: Path) -> None:
    """Unmount all that is mounted at `folder` or below it; a copy is left for its owner to delete."""
    points = mounts_under(folder.resolve(), MOUNTINFO.read_text())
    for point in points:
        # Of a tree bound from the machine's own (its /sys, its /dev), an unmount would else reach the machine's too.
        succeeds(["mount", "--make-private", point])
    for point in points:
        # One that a process still stands in leaves our tree all the same, and goes when that process does.
        if not succeeds(["umount", point]):
            run(["umount", "--lazy", point])


def delete(folder: Path) -> None:
    """Remove a folder that may hold mounts, whole. Never descends into a mount: it may be the machine's own /dev/shm.

    Raises KitError(INTERNAL, ``sim.mounts``) when something is mounted there that does not go away; nothing is removed then.
    """
    release(folder)
    left = mounts_under(folder.resolve(), MOUNTINFO.read_text())
    if left:
        found = ", ".join(map(str, left))
        step = "end what uses it, `umount` it, then again"
        raise KitError(failure("sim.mounts", str(folder), "nothing mounted there", found, step), ExitCode.INTERNAL)
    if folder.exists():
        run(["rm", "-rf", "--one-file-system", "--", folder], timeout_s=600)
