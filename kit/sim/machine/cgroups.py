"""Control groups of a simulated host: a place of its own in each hierarchy, and a real memory limit where asked.

Two hosts in one control group would have their systemds kill each other's processes. Handles a pure version-2
machine, a version-1 one, and the mixed kind (version 1 with ``/sys/fs/cgroup/unified``).
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from kit.errors import ExitCode, KitError, failure

FS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Layout:
    """Which hierarchies there are; each is a mount point or None."""

    unified: Path | None
    named: Path | None
    """``name=systemd`` of version 1."""
    memory: Path | None
    """Where memory is limited."""
    pure_v2: bool


def layout(mounts: str) -> Layout:
    """Pure: from the text of ``/proc/self/mounts``."""
    unified = named = memory = None
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 4 or not fields[1].startswith(str(FS)):
            continue
        point, kind, options = Path(fields[1]), fields[2], fields[3].split(",")
        if kind == "cgroup2":
            unified = point
        elif kind == "cgroup" and "name=systemd" in options:
            named = point
        elif kind == "cgroup" and "memory" in options:
            memory = point
    pure_v2 = unified == FS
    return Layout(unified, named, unified if pure_v2 else memory, pure_v2)


def group_name(index: int) -> str:
    """Of the host with this index, under the root of each hierarchy."""
    return f"b300kit-sim-{index}"


def machine_layout() -> Layout:
    """Of this machine."""
    return layout(Path("/proc/self/mounts").read_text())


def folders(at: Layout, name: str) -> list[Path]:
    """The group `name` in each hierarchy that matters, each once; pure."""
    return list(dict.fromkeys(top / name for top in (at.unified, at.named, at.memory) if top is not None))


def create(at: Layout, name: str, memory_mib: int | None) -> list[list[str]]:
    """Make the groups. Returns what the supervisor must write once nspawn has made its inner group.

    Raises KitError(INTERNAL, ``sim.memory_limit``) when a limit was asked for that this machine cannot set.
    """
    for folder in folders(at, name):
        folder.mkdir(exist_ok=True)
    if memory_mib is None:
        return []
    limit = str(memory_mib * 1024 * 1024)
    if at.memory is None:
        raise _no_limit("no memory controller is mounted")
    if not at.pure_v2:
        (at.memory / name / "memory.limit_in_bytes").write_text(limit)
        return []
    control = at.memory / "cgroup.subtree_control"
    if "memory" not in control.read_text().split():
        try:
            control.write_text("+memory")
        except OSError as error:
            raise _no_limit(f"{control}: {error.strerror}") from error
    (at.memory / name / "memory.max").write_text(limit)
    # The host sees its own group as the root of the tree, so the limit has to be readable there as well.
    return [[str(at.memory / name / "payload" / "memory.max"), limit]]


def _no_limit(found: str) -> KitError:
    return KitError(
        failure("sim.memory_limit", str(FS), "a control group with a memory limit", found, "use another profile"),
        ExitCode.INTERNAL,
    )


def _members(folder: Path) -> list[int]:
    return [int(pid) for file in folder.rglob("cgroup.procs") for pid in file.read_text().split()]


def remove(at: Layout, name: str, timeout_s: float = 10) -> None:
    """Kill what still runs in the groups and remove them; nothing happens when they are gone already."""
    deadline = time.monotonic() + timeout_s
    for folder in folders(at, name):
        while folder.exists():
            try:
                for pid in _members(folder):
                    os.kill(pid, signal.SIGKILL)
                for inner in sorted((p for p in folder.rglob("*") if p.is_dir()), reverse=True):
                    inner.rmdir()
                folder.rmdir()
            except (ProcessLookupError, FileNotFoundError):
                continue
            except OSError as error:
                if time.monotonic() > deadline:
                    raise KitError(
                        failure("sim.cgroup", str(folder), "to be removed", str(error), "invoke sim.down again"),
                        ExitCode.INTERNAL,
                    ) from error
                time.sleep(0.05)
