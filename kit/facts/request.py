"""What the planner asks of the probe. Pure; travels as base64 JSON on the command line, so never put a secret here."""

from __future__ import annotations

import base64

from pydantic import BaseModel, ConfigDict, Field


class ProbeRequest(BaseModel):
    """Names to look up on the host, beyond what is always read."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    packages: tuple[str, ...] = ()
    """Debian package names."""
    services: tuple[str, ...] = ()
    """systemd units, with their suffix."""
    sysctls: tuple[str, ...] = ()
    """Dotted names, e.g. ``vm.swappiness``."""
    files: tuple[str, ...] = ()
    """Absolute paths. A directory or a device is reported as not regular."""
    users: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    """Absolute paths; one that is not there yet stands for the file system that would hold it."""
    nvml_timeout_s: float = Field(20.0, gt=0, le=600)
    """Longest wait for NVML, and for CUDA. Without persistence mode a first call initializes every GPU: seconds each."""
    measure_cores: bool = False
    """Also measure core speeds, which loads the machine; refused on a host that serves."""

    def encoded(self) -> str:
        """For the command line: unreadable to any shell on the way."""
        return base64.b64encode(self.model_dump_json().encode()).decode()
