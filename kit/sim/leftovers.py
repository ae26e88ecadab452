"""What of simulated hosts is really there, whatever the state files say: their processes, mounts and held locks.

Standard library only: the Makefile asks it with any Python before it removes something (``python3 -m kit.sim.leftovers CACHE``:
exit 1, and a line for each thing).
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
MOUNTINFO = PROC / "self/mountinfo"
_STARTERS = ("systemd-nspawn", "qemu-system-x86_64")
_GROUP = re.compile(r"/b300kit-sim-(\d+)(?:/|$)", re.MULTILINE)
_OCTAL = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True)
class Process:
    """One that belongs to a simulated host."""

    pid: int
    host: str
    index: int | None
    """Of the host's control group, when it is in one."""
    supervisor: bool


def _plain(field: str) -> str:
    """A field of mountinfo, with its octal escapes undone."""
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), field)


def mounts_under(folder: Path, mountinfo: str) -> list[Path]:
    """Mount points at `folder` or below, in the order in which they can be unmounted; pure, from ``/proc/self/mountinfo``."""
    points = [Path(_plain(line.split()[4])) for line in mountinfo.splitlines()]
    return [point for point in reversed(points) if point == folder or folder in point.parents]


def _host_in(hosts: Path, text: str) -> str | None:
    """Name of the host whose folder under `hosts` is named in `text`."""
    _, there, rest = text.partition(f"{hosts}/")
    return re.split(r"[/,\s:]", rest, maxsplit=1)[0] or None if there else None


def host_of(hosts: Path, words: list[str], mountinfo: str) -> str | None:
    """The host that a process keeps up (by its argv) or lives in (by what its ``/`` is); None: neither. Pure.

    Not every process that names the folder: somebody may be reading a console there.
    """
    if words and (Path(words[0]).name in _STARTERS or any(Path(word).name == "supervisor.py" for word in words)):
        return next((name for word in words if (name := _host_in(hosts, word))), None)
    root = next((line for line in mountinfo.splitlines() if line.split()[4] == "/"), "")
    return _host_in(hosts, _plain(root))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""  # ended meanwhile, or not ours to read


def processes(hosts: Path, proc: Path = PROC) -> list[Process]:
    """Every process of the hosts whose folders lie in `hosts`. Those inside a host can be told only by root."""
    found = []
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        words = _read(entry / "cmdline").rstrip("\0").split("\0")
        name = host_of(hosts, words, _read(entry / "mountinfo"))
        if name:
            group = _GROUP.search(_read(entry / "cgroup"))
            supervisor = any(Path(word).name == "supervisor.py" for word in words)
            found.append(Process(int(entry.name), name, int(group[1]) if group else None, supervisor))
    return found


def _held(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.glob("*")):
        with path.open() as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield path


def told(cache: Path, below: str = "sim") -> list[str]:
    """A line for each host that runs, each mount under the cache's folder `below`, and each ``sim`` command at work."""
    running: dict[str, list[int]] = {}
    for process in processes(cache / "sim/hosts"):
        running.setdefault(process.host, []).append(process.pid)
    lines = [f"simulated host {name}: {len(pids)} processes, the first {min(pids)}" for name, pids in sorted(running.items())]
    points = mounts_under(cache / below, MOUNTINFO.read_text())
    lines += [f"mounted: {point}" for point in points if point != cache]
    return lines + [f"at work: a command holds {path}" for path in _held(cache / "sim/locks")]


def main() -> int:
    """Exit 1 when something is there. ``--all``: in the whole cache, once the idle mounts of image building are released."""
    cache, everything = Path(sys.argv[1]).resolve(), "--all" in sys.argv
    if everything:
        for point in mounts_under(cache / "image", MOUNTINFO.read_text()):
            # Only one that nobody uses goes; the others are told below.
            subprocess.run(["umount", str(point)], stderr=subprocess.DEVNULL, check=False)
    lines = told(cache, "." if everything else "sim")
    if lines:
        print("\n".join(lines), file=sys.stderr)  # noqa: T201 - this is its answer
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
