"""RAM, huge pages, cgroup limits, live limits of a process, disks."""

from __future__ import annotations

import os
import re
from functools import partial

from kit.facts.host.read import Json, Unreadable, fact, is_unknown, text

_V1_UNLIMITED = 1 << 60
"""cgroup v1 writes a huge rounded number for "no limit"."""


def meminfo(path: str = "/proc/meminfo") -> dict[str, int]:
    """Name -> number (KiB for those with a unit)."""
    found: dict[str, int] = {}
    for line in text(path).splitlines():
        match = re.match(r"^(?:Node \d+ )?([A-Za-z0-9_()]+):\s+(\d+)", line)
        if match:
            found[match.group(1)] = int(match.group(2))
    return found


def cgroup_limit(root: str = "/sys/fs/cgroup", own: str = "/proc/self/cgroup") -> int | None:
    """Smallest memory limit in bytes from the process's own group up to the root; None when there is none.

    Raises Unreadable when no memory controller can be seen.
    """
    paths: dict[str, str] = {}
    for line in text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    v2 = os.path.exists(root + "/cgroup.controllers")
    if v2:
        base, path, name = root, paths.get("", "/"), "memory.max"
    elif "memory" in paths and os.path.isdir(root + "/memory"):
        base, path, name = root + "/memory", paths["memory"], "memory.limit_in_bytes"
    else:
        raise Unreadable(f"no memory cgroup in {root}")
    limits: list[int] = []
    seen = False
    parts = [part for part in path.split("/") if part and part != ".."]
    for depth in range(len(parts), -1, -1):
        file = "/".join([base, *parts[:depth], name])
        try:
            value = text(file)
        except FileNotFoundError:
            continue  # the true root has no limit file
        seen = True
        if value != "max" and int(value) < _V1_UNLIMITED:
            limits.append(int(value))
    if not seen and not v2:
        raise Unreadable(f"no memory limit file below {base}")
    return min(limits) if limits else None


def shm_kib() -> int:
    """Size of /dev/shm."""
    found = os.statvfs("/dev/shm")  # noqa: S108  (read only)
    return found.f_blocks * found.f_frsize // 1024


def thp() -> str:
    """The word in brackets."""
    words = text("/sys/kernel/mm/transparent_hugepage/enabled")
    match = re.search(r"\[(\w+)\]", words)
    if not match:
        raise Unreadable(f"no word in brackets in {words[:60]!r}")
    return match.group(1)


def swap_in_fstab(path: str = "/etc/fstab") -> bool:
    """Whether the next boot would turn swap on."""
    for line in text(path).splitlines():
        fields = line.split()
        if len(fields) >= 3 and not fields[0].startswith("#") and fields[2] == "swap" and "noauto" not in fields[3:4]:
            return True
    return False


def _total(path: str) -> int:
    return meminfo(path)["MemTotal"]


def node_totals() -> dict[str, Json]:
    """NUMA node -> KiB."""
    base = "/sys/devices/system/node"
    try:
        names = sorted(name for name in os.listdir(base) if re.match(r"^node\d+$", name))
    except OSError:
        return {}
    return {name[4:]: fact(partial(_total, f"{base}/{name}/meminfo")) for name in names}


def read() -> Json:
    """The ``memory`` part of the facts."""
    info = fact(meminfo)
    limit = fact(lambda: {"bytes": cgroup_limit()})

    def of(name: str) -> Json:
        if is_unknown(info):
            return info
        return fact(lambda: info[name])

    def limit_kib() -> int:
        if limit["bytes"] is None:
            raise Unreadable("no limit")
        return int(limit["bytes"]) // 1024

    return {
        "total_kib": of("MemTotal"),
        "available_kib": of("MemAvailable"),
        "cgroup_limit_kib": limit if is_unknown(limit) else fact(limit_kib),
        "cgroup_limited": limit if is_unknown(limit) else limit["bytes"] is not None,
        "huge_page_kib": of("Hugepagesize"),
        "huge_pages_total": of("HugePages_Total"),
        "huge_pages_free": of("HugePages_Free"),
        "swap_total_kib": of("SwapTotal"),
        "swap_in_fstab": fact(swap_in_fstab),
        "thp": fact(thp),
        "shm_kib": fact(shm_kib),
        "node_total_kib": node_totals(),
    }


def limits(name: str, pid: int) -> Json:
    """The ``limits`` part: of one live process."""

    def value(label: str, divisor: int) -> int:
        for line in text(f"/proc/{pid}/limits").splitlines():
            if line.startswith(label):
                soft = line[len(label) :].split()[0]
                return -1 if soft == "unlimited" else int(soft) // divisor
        raise Unreadable(f"/proc/{pid}/limits has no {label!r}")

    return {
        "process": name,
        "memlock_kib": fact(lambda: value("Max locked memory", 1024)),
        "nofile": fact(lambda: value("Max open files", 1)),
    }


def disk(path: str) -> Json:
    """One path the kit cares about; when it is not there yet, the file system that would hold it."""

    def existing() -> str:
        place = path
        while not os.path.exists(place) and place != "/":
            place = os.path.dirname(place)
        return place

    def mount() -> tuple[str, str]:
        place = os.path.realpath(existing())
        best = ("", "", "")
        for line in text("/proc/self/mountinfo").splitlines():
            fields = line.split()
            point = re.sub(r"\\(\d{3})", lambda m: chr(int(m.group(1), 8)), fields[4])
            inside = place == point or place.startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best[0]):
                best = (point, fields[fields.index("-") + 1], fields[5])
        if not best[0]:
            raise Unreadable(f"no mount holds {place}")
        return best[1], best[2]

    def size(free: bool) -> int:
        found = os.statvfs(existing())
        return (found.f_bavail if free else found.f_blocks) * found.f_frsize // 1024

    return {
        "path": path,
        "filesystem": fact(lambda: mount()[0]),
        "total_kib": fact(lambda: size(False)),
        "free_kib": fact(lambda: size(True)),
        "read_only": fact(lambda: bool(os.statvfs(existing()).f_flag & os.ST_RDONLY)),
    }
