"""An engine that runs on this machine, started by hand or by a test: the same gates, without a host of the fleet. Edge."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kit.engine.model import EngineProfile
from kit.errors import ExitCode, KitError, failure
from kit.gates.gather.weights import weights_sha256
from kit.gates.identity import Identity

PROC = Path("/proc")


def listener(port: int) -> int:
    """PID of the process that listens on a port of this machine. Raises KitError(UNREACHABLE) when there is none."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        for line in (PROC / "net" / table).read_text().splitlines()[1:]:
            parts = line.split()
            if parts[3] == "0A" and int(parts[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{parts[9]}]")
    for process in PROC.iterdir():
        if not process.name.isdigit():
            continue
        try:
            links = [str(link.readlink()) for link in (process / "fd").iterdir()]
        except OSError:
            continue
        if inodes & set(links):
            return int(process.name)
    step = "start it: `invoke engine.show --profile NAME` shows the command"
    raise KitError(failure("engine.unreachable", f"port {port}", "an engine that listens", "none", step), ExitCode.UNREACHABLE)


def identity(name: str, profile: EngineProfile, pid: int) -> Identity:
    """What runs in this process, as far as the machine tells: the command is read from the process, not from the profile."""
    process = PROC / str(pid)
    try:
        argv = (process / "cmdline").read_bytes()
        started = (process / "stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        argv, started = b"", ""
    words = argv.decode(errors="replace").split("\0")
    folder = words[words.index("--model-path") + 1] if "--model-path" in words else profile.model.path
    try:
        weights: str | None = weights_sha256(Path(folder))
    except OSError:
        weights = None
    return Identity(
        host=name,
        profile=profile.name,
        model=profile.model.served_name,
        image_id=f"python:{words[0]}" if argv else None,
        plan_digest="no plan: not a host of the fleet",
        argv_sha256=hashlib.sha256(argv).hexdigest() if argv else None,
        weights_sha256=weights,
        boot_id=(PROC / "sys/kernel/random/boot_id").read_text().strip(),
        invocation_id=f"{pid}@{started}" if started else None,
    )
