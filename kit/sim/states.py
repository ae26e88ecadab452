"""State files: which hosts were brought up, and whether each still runs."""

from __future__ import annotations

import socket

from pydantic import ValidationError

from kit import procfs
from kit.files import replace
from kit.sim.model import HostState
from kit.sim.places import Places


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
    replace(places.host(state.name).state, state.model_dump_json(indent=2).encode())


def running(state: HostState) -> bool:
    """Whether its supervisor lives: this boot, this pid, and the same process as then."""
    return state.machine_boot_id == procfs.boot_id() and procfs.started(state.supervisor_pid) == state.supervisor_start


def answers(address: str, port: int, timeout_s: float = 1.0) -> bool:
    """Whether an sshd greets there."""
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as link:
            link.settimeout(timeout_s)
            return link.recv(4) == b"SSH-"
    except OSError:
        return False
