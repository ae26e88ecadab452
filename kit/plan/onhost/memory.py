"""Size of /dev/shm, huge pages, transparent huge pages (b300kit-memory.service). /dev/shm is only ever made larger."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kit.plan.onhost.common import Part, ReadBack, put, read, run, set_parts, settled

MIB = 1024 * 1024


def shm(want_mib: int, root: Path) -> ReadBack:
    """Remount /dev/shm larger when it is smaller than ``want_mib``."""
    folder = root / "dev" / "shm"
    if size_mib(folder) < want_mib:
        run(["mount", "-o", f"remount,size={want_mib}M", str(folder)])

    def look() -> ReadBack:
        found = size_mib(folder)
        return {"mib": found}, [f"it has {found} MiB, declared are {want_mib}"] if found < want_mib else []

    return settled(look)


def size_mib(folder: Path) -> int:
    """Size of the file system at ``folder`` in MiB, rounded down."""
    stat = os.statvfs(folder)
    return stat.f_blocks * stat.f_frsize // MIB


def huge_pages(want: dict[str, int], root: Path) -> ReadBack:
    """Reserve pages of one size. The kernel reserves fewer, without an error, where memory is fragmented."""
    path = root / f"sys/kernel/mm/hugepages/hugepages-{want['size_kib']}kB/nr_hugepages"
    put(path, str(want["count"]))

    def look() -> ReadBack:
        found = int(read(path))
        bad = f"{found} pages of {want['size_kib']} KiB, declared are {want['count']}: memory is fragmented or too small"
        return {"size_kib": want["size_kib"], "count": found}, [bad] if found != want["count"] else []

    return settled(look)


def transparent(want: str, root: Path) -> ReadBack:
    """The mode of transparent huge pages: the bracketed word."""
    path = root / "sys/kernel/mm/transparent_hugepage/enabled"
    if chosen(path) != want:
        path.write_text(want)

    def look() -> ReadBack:
        found = chosen(path)
        return {"mode": found}, [f"is {found}, declared is {want}"] if found != want else []

    return settled(look)


def chosen(path: Path) -> str:
    """``always [madvise] never`` -> ``madvise``."""
    return read(path).partition("[")[2].partition("]")[0]


PARTS: dict[str, Part] = {"shm_mib": shm, "huge_pages": huge_pages, "transparent_huge_pages": transparent}

if __name__ == "__main__":
    sys.exit(set_parts(sys.argv[1:], PARTS))
