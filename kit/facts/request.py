"""What the planner asks of the probe. Pure; travels as base64 JSON, ahead of the script. No secret belongs here."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


def encoded(document: Mapping[str, Any]) -> str:
    """A request as one of our scripts takes it: a word that no shell on the way can read differently."""
    return base64.b64encode(json.dumps(document).encode()).decode()


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

    def encoded(self) -> str:
        """See :func:`encoded`."""
        return encoded(self.model_dump(mode="json"))
