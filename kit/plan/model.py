"""The plan: what would be done to a host, and why. Pure data; printing it is the dry run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, computed_field, model_validator


class Action(StrEnum):
    """What a step will do."""

    KEEP = "keep"
    """As declared already; nothing runs."""
    CHANGE = "change"
    """Ansible will change it."""
    REFUSE = "refuse"
    """Software cannot mend it (or must not now); nothing at all is applied to this host."""
    REBOOT = "reboot"
    """Takes effect only after a reboot; done only with ``--reboot``."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ManagedFile(_Frozen):
    """A file the kit owns on a host, fully rendered."""

    path: str
    content: str
    mode: str = "0644"
    owner: str = "root"
    group: str = "root"
    check_with: str | None = None
    """Command that must accept the new file before it takes its place; ``%s`` is its temporary name."""

    @model_validator(mode="before")
    @classmethod
    def _digest_agrees(cls, data: Any) -> Any:
        """A recorded file carries its hash; it is read back only when the two agree."""
        if isinstance(data, Mapping) and "sha256" in data:
            rest = {key: value for key, value in data.items() if key != "sha256"}
            if hashlib.sha256(str(rest.get("content", "")).encode()).hexdigest() != data["sha256"]:
                raise ValueError("sha256 is not that of content")
            return rest
        return data

    @computed_field  # type: ignore[prop-decorator]
    @property
    def sha256(self) -> str:
        """Hex SHA-256 of the UTF-8 content; compared with the hash read on the host."""
        return hashlib.sha256(self.content.encode()).hexdigest()


class Step(_Frozen):
    """One decision about one thing on the host."""

    id: str
    """Stable dotted name, ``<area>.<thing>``, e.g. ``cpu.governor``."""
    action: Action
    reason: str
    """Why, in one sentence an operator can act on; never empty, for ``keep`` too."""
    expected: str = ""
    found: str = ""
    next: str = ""
    """For ``refuse``: what a person should do."""
    role: str | None = None
    """The Ansible role that carries out a ``change`` or ``reboot``."""
    disruptive: bool = False
    """True when doing it could disturb a running engine; refused while the host is joined."""
    file: ManagedFile | None = None
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Further variables for the role; lists of several steps of one role are joined."""
    current: str | None = None
    """For a file: the text on the host now, when it was read, so that a diff can be shown."""


class Plan(_Frozen):
    """Every decision about one host, in the order they would be carried out."""

    host: str
    boot_id: str
    steps: tuple[Step, ...]

    def of(self, action: Action) -> tuple[Step, ...]:
        """The steps with this action, in order."""
        return tuple(s for s in self.steps if s.action is action)

    @property
    def refused(self) -> bool:
        """Whether anything is refused: then nothing is applied."""
        return bool(self.of(Action.REFUSE))

    @property
    def pending(self) -> bool:
        """Whether anything would change, a reboot included."""
        return bool(self.of(Action.CHANGE) or self.of(Action.REBOOT))

    def digest(self) -> str:
        """Hex SHA-256 over host and steps, not over the boot: the same decisions, the same digest."""
        return hashlib.sha256(self.model_dump_json(exclude={"boot_id"}).encode()).hexdigest()
