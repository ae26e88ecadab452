#!/usr/bin/python3
"""Sets the size of /dev/shm, huge pages and transparent huge pages as declared, and reads each back.

Written by b300kit; run by b300kit-memory.service at each boot. Standard library only, Python 3.9. Writes only what
differs. /dev/shm is only ever made larger. Exit 0: all read back as declared; 1: not.

    memory.py --config /etc/b300kit/memory.json --result /run/b300kit/memory.json [--root /]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

MIB = 1024 * 1024
TOOL_TIMEOUT_S = 60


def main(argv):
    """Run every part, record what was read back, and say what is not as declared."""
    options = argparse.ArgumentParser()
    options.add_argument("--config", required=True)
    options.add_argument("--result", required=True)
    options.add_argument("--root", default="/")
    asked = options.parse_args(argv)
    config = json.loads(Path(asked.config).read_text())
    root = Path(asked.root)
    read_back, wrong = {}, []
    for name, part in (("shm_mib", shm), ("huge_pages", huge_pages), ("transparent_huge_pages", transparent)):
        try:
            read_back[name], faults = part(config[name], root)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            read_back[name], faults = {"error": str(error)}, [str(error)]
        wrong += [f"{name}: {fault}" for fault in faults]
    boot_id = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    record(Path(asked.result), {"schema_version": 1, "boot_id": boot_id, "read_back": read_back, "wrong": wrong})
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def record(path, document):
    """Write the result in one piece: a reader never sees half a file."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        json.dump(document, file, indent=2, sort_keys=True)
        file.write("\n")
        os.fchmod(file.fileno(), 0o644)
    os.replace(file.name, path)


def shm(want_mib, root):
    """Remount /dev/shm larger when it is smaller than ``want_mib``."""
    folder = root / "dev/shm"
    if size_mib(folder) < want_mib:
        subprocess.run(
            ["mount", "-o", f"remount,size={want_mib}M", str(folder)],
            check=True,
            capture_output=True,
            text=True,
            timeout=TOOL_TIMEOUT_S,
        )
    found = size_mib(folder)
    return {"mib": found}, [f"/dev/shm has {found} MiB, declared are {want_mib}"] if found < want_mib else []


def size_mib(folder):
    """Size of the file system at ``folder`` in MiB, rounded down."""
    stat = os.statvfs(folder)
    return stat.f_blocks * stat.f_frsize // MIB


def huge_pages(want, root):
    """Reserve pages of one size. The kernel reserves fewer, without an error, where memory is fragmented."""
    path = root / f"sys/kernel/mm/hugepages/hugepages-{want['size_kib']}kB/nr_hugepages"
    if int(path.read_text()) != want["count"]:
        path.write_text(str(want["count"]))
    found = int(path.read_text())
    bad = [
        f"{found} pages of {want['size_kib']} KiB, declared are {want['count']}: memory is fragmented or too small; reboot and try again"
    ]
    return {"size_kib": want["size_kib"], "count": found}, bad if found != want["count"] else []


def transparent(want, root):
    """The mode of transparent huge pages: the bracketed word."""
    path = root / "sys/kernel/mm/transparent_hugepage/enabled"
    if chosen(path) != want:
        path.write_text(want)
    found = chosen(path)
    return {"mode": found}, [f"is {found}, declared is {want}"] if found != want else []


def chosen(path):
    """``always [madvise] never`` -> ``madvise``."""
    return path.read_text().partition("[")[2].partition("]")[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
