"""What joining and rolling out need of a node: the same words for a host of the fleet and for an engine of a test on loopback."""

from __future__ import annotations

from typing import Protocol

from kit.engine.model import EngineProfile
from kit.gates.commands import Subject
from kit.gates.identity import Identity
from kit.router.model import Membership


class Node(Protocol):
    """One node. Methods raise KitError when the node cannot be reached or refuses."""

    name: str
    url: str
    """Of its engine, as routers reach it."""
    profile: EngineProfile
    key: str | None
    """The engine's API key."""

    def identity(self) -> Identity:
        """What runs there now, read anew."""

    def membership(self) -> Membership | None:
        """The marker on the node; None: there is none."""

    def mark(self, membership: Membership) -> None:
        """Replace the marker."""

    def open_port(self) -> None:
        """Let routers reach the engine's port. Nothing but join calls this."""

    def close_port(self) -> None:
        """Let nobody in. Every start and stop of the engine does the same by itself."""

    def subject(self) -> Subject:
        """For its gates: reached past the closed port."""

    def start(self) -> None:
        """Start the engine, port closed; returns when it was told to, not when it is ready."""

    def stop(self) -> None:
        """Stop the engine; returns when it is down."""
