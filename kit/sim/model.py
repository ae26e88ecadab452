"""What the simulator tells about its hosts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from pydantic import BaseModel, ConfigDict

from kit.spec.model import Name

Runtime = Literal["nspawn", "qemu"]
Progress = Callable[[str], None]
"""Called with one line about what starts now."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class HostState(_Frozen):
    """A host that was brought up: enough to find it again and to take it down whole."""

    schema_version: Literal[1] = 1
    name: Name
    profile: str
    runtime: Runtime
    index: int
    address: str
    port: int = 22
    host_key: str
    layers: tuple[str, ...] = ()
    """Folders under ``layers/`` that its root file system is made of."""
    machine_boot_id: str
    """Boot of the control machine; a state from an earlier one is stale."""
    supervisor_pid: int
    supervisor_start: int
    """Field 22 of ``/proc/PID/stat``, so that a reused pid is not taken for the supervisor."""


class SimHost(_Frozen):
    """One line of ``sim.status``."""

    name: Name
    profile: str
    runtime: Runtime
    address: str
    port: int
    running: bool
    """Whether its supervisor lives."""
    answers: bool
    """Whether its sshd greets."""
    created: bool = False
    """Whether this very call brought it up."""
    seconds: float = 0.0
    """What bringing it up took."""
    console: str
    """Log file of the host's console."""
    login: str
    """A line for a shell that logs in, with the host's key pinned."""


class Removed(_Frozen):
    """What ``sim.down`` took away."""

    name: Name
    was_running: bool
