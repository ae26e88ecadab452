"""Which files of a model are on a host: by size and sampled hash, in parallel, or in full. Reads; changes nothing.

Argument: JSON with ``folder``, ``files`` (``path``, ``bytes``, ``sha256``, ``sampled_sha256``) and ``full``.
"""

import hashlib
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

EDGE = 1 << 20


def sampled(path: Path) -> str:
    """Over the size and the first and last MiB. It proves which file it is, not that no bit in the middle flipped."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        digest.update(file.read(EDGE))
        if size > EDGE:
            file.seek(-EDGE, os.SEEK_END)
            digest.update(file.read(EDGE))
    return digest.hexdigest()


def whole(path: Path) -> str:
    """Over every byte."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while True:
            data = file.read(EDGE)
            if not data:
                return digest.hexdigest()
            digest.update(data)


def state(folder: Path, file: Any, full: bool) -> str:
    """``good``, ``absent``, or what is wrong."""
    path = folder / file["path"]
    try:
        size = path.stat().st_size
        if size != file["bytes"]:
            return f"has {size} bytes, not {file['bytes']}"
        name = "sha256" if full else "sampled_sha256"
        found = whole(path) if full else sampled(path)
    except FileNotFoundError:
        return "absent"
    except OSError as error:
        return str(error)
    return "good" if found == file[name] else f"has {name} {found}"


def free(folder: Path) -> int:
    """Bytes for root on the file system where the folder is, or will be."""
    while not folder.is_dir():
        folder = folder.parent
    room = os.statvfs(folder)
    return room.f_bavail * room.f_frsize


def main(argument: str) -> None:
    """One JSON document on standard output."""
    asked = json.loads(argument)
    folder = Path(asked["folder"])
    known = {file["path"] for file in asked["files"]}
    with ThreadPoolExecutor(8) as pool:
        states = list(pool.map(lambda file: state(folder, file, asked["full"]), asked["files"]))
    there = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    extra = sorted(str(path.relative_to(folder)) for path in there)
    document = {
        "states": {asked["files"][number]["path"]: found for number, found in enumerate(states)},
        "extra": [name for name in extra if name not in known and not name.endswith(".b300kit-partial")],
        "free_bytes": free(folder),
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
