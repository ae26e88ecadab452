"""Which images a host has, which parts of a delivery, which images run, how much room there is. Reads; changes nothing.

Argument: JSON with ``folder``, ``image_id``, ``runtime``, ``user``, ``uid``, ``usage``, and ``layers``:
``diff_id`` and ``parts``, each with ``name`` and ``bytes``.
"""

import hashlib
import json
import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any


def has(folder: Path, image: str, loaded: Any) -> bool:
    """Whether an image is there, whole: it is renamed into place last, and its configuration's hash is its id."""
    try:
        found = hashlib.sha256((folder / image / "image.json").read_bytes()).hexdigest()
    except OSError:
        return False
    return found == image and (image in loaded if loaded is not None else (folder / image / "rootfs").is_dir())


def images(folder: Path, loaded: Any) -> dict[str, float]:
    """Id -> when it came, in seconds since 1970, of all that are there; ``loaded`` are those of a daemon."""
    try:
        names = [path.name for path in folder.iterdir() if len(path.name) == 64]
    except OSError:
        return {}
    return {name: (folder / name / "image.json").stat().st_ctime for name in names if has(folder, name, loaded)}


def docker(*words: str) -> Any:
    """Words that the docker command prints; None when it does not answer."""
    try:
        done = subprocess.run(
            ["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return [word.replace("sha256:", "") for word in done.stdout.split()]


def in_containers() -> Any:
    """Sorted ids that a container is of; None when that cannot be told."""
    containers = docker("ps", "--all", "--quiet")
    if not containers:
        return containers
    found = docker("inspect", "--format", "{{.Image}}", *containers)
    return None if found is None else sorted(set(found))


def parts(folder: Path, layers: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Diff id -> names of the parts that are there with their full size."""
    out: dict[str, list[str]] = {}
    for layer in layers:
        there = []
        for part in layer["parts"]:
            try:
                size = (folder / ".parts" / layer["diff_id"] / part["name"]).stat().st_size
            except OSError:
                continue
            if size == part["bytes"]:
                there.append(part["name"])
        out[layer["diff_id"]] = there
    return out


def in_use(folder: Path) -> Any:
    """Sorted ids that a process runs in, or that a unit names as its root; None when that cannot be told."""
    roots: set[str] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                roots.add(str((entry / "root").readlink()))
            except OSError:
                continue
    command = ["systemctl", "show", "--property=RootDirectory", "--value", "*"]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    roots.update(done.stdout.split())
    return sorted({Path(root).relative_to(folder).parts[0] for root in roots if folder in Path(root).parents})


def user(name: str, uid: int) -> bool:
    """Whether the engine's user is there, with its number."""
    try:
        return pwd.getpwnam(name).pw_uid == uid
    except KeyError:
        return False


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
    by_docker = asked["runtime"] == "docker"
    there = images(folder, (docker("image", "ls", "--all", "--no-trunc", "--quiet") or []) if by_docker else None)
    document = {
        "images": there,
        "present": asked["image_id"] in there and user(asked["user"], asked["uid"]),
        "parts": parts(folder, asked["layers"]),
        "in_use": (in_containers() if by_docker else in_use(folder)) if asked["usage"] else None,
        "free_bytes": free(folder),
    }
    json.dump(document, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
