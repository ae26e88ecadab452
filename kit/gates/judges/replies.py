"""A chat reply as recorded, streamed or not, and what may never stand in one. Shared by the gates that talk. Pure."""

from __future__ import annotations

import re

from kit.gates.declare import Frozen

LEAK = re.compile(r"DSML|<\s*[|｜‖]|[|｜‖]\s*>|</?tool_calls?>|<tool[▁_](?:call|sep)|<function[=>]")
"""Marks of a tool call that belong to the parser. Streamed text is joined first, so a mark split over chunks is seen too."""
THINK = re.compile(r"</?think(?:ing)?>")


class Call(Frozen):
    """A tool call."""

    name: str
    arguments: str
    """As text: it must be JSON, and a stream gives it in pieces."""


class Reply(Frozen):
    """What came back for one request."""

    case: str
    streamed: bool
    status: int
    """HTTP status; 0 when the connection failed."""
    error: str = ""
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()
    finish: str | None = None
    """None: the stream ended without one, which is how a dead engine looks to a client."""
    chunks: int = 0
    """Events with text or calls."""
    tokens: int | None = None
    """Of usage."""
    prompt_tokens: int | None = None
    seconds: float = 0.0

    @property
    def where(self) -> str:
        """For faults."""
        return f"{self.case}, {'streamed' if self.streamed else 'whole'}"


def broken(reply: Reply) -> tuple[str, str] | None:
    """(expected, found) when the request itself did not come to an end."""
    if reply.status != 200:
        return "status 200", f"{reply.status} {reply.error}".strip()
    if reply.finish is None:
        return "a finish reason", "the stream ended without one"
    return None
