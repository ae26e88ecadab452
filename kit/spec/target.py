"""A host that was asked for, with all that is declared about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kit.spec.model import FleetFile, HostSpec, Lock


@dataclass(frozen=True)
class Target:
    """One host of one fleet. ``source`` is the host file it was read from.

    Equal, and hashed, by the host's name and the file it came from: a name is unique over all fleets in use.
    """

    spec: HostSpec
    lock: Lock
    fleet: FleetFile
    source: Path

    @property
    def name(self) -> str:
        """The host's name: what ``--host`` takes, and the inventory name."""
        return self.spec.name

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Target):
            return NotImplemented
        return (self.name, self.source) == (other.name, other.source)

    def __hash__(self) -> int:
        return hash((self.name, self.source))
