"""State files: which hosts were brought up, and whether each still runs."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from pydantic import ValidationError

from kit.sim.model import HostState
from kit.sim.places import Places

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def machine_boot_id() -> str:
    """Of this machine's current boot."""
    return BOOT_ID.read_text().strip()


def start_ticks(pid: int) -> int | None:
    """When a process started (clock ticks since boot); None when there is none, or only its remains."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] == "Z" else int(fields[19])


def read(places: Places, name: str) -> HostState | None:
    """The state of one host; None when there is none or it cannot be read (a run killed while it was made)."""
    try:
        return HostState.model_validate_json(places.host(name).state.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None


def read_all(places: Places) -> list[HostState]:
    """Of every host folder that has one, by name."""
    if not places.hosts.is_dir():
        return []
    found = (read(places, folder.name) for folder in sorted(places.hosts.iterdir()) if folder.is_dir())
    return [state for state in found if state is not None]


def write(places: Places, state: HostState) -> None:
    """Atomically."""
    target = places.host(state.name).state
    fresh = target.with_name(f".state.{os.getpid()}")
    fresh.write_text(state.model_dump_json(indent=2))
    fresh.rename(target)


def running(state: HostState) -> bool:
    """Whether its supervisor lives: this boot, this pid, and the same process as then."""
    return state.machine_boot_id == machine_boot_id() and start_ticks(state.supervisor_pid) == state.supervisor_start


def answers(address: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether an sshd greets there."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as link:
            link.settimeout(timeout_s)
            return link.recv(4) == b"SSH-"
    except OSError:
        return False
