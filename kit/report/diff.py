"""A managed file's change as a unified diff. Pure."""

from __future__ import annotations

import difflib
from typing import Literal, NamedTuple

from kit.plan.model import Step
from kit.report.clean import visible


class Line(NamedTuple):
    """One line of a diff, without its newline, safe to show."""

    kind: Literal["head", "hunk", "add", "drop", "same", "note"]
    text: str


def file_diff(step: Step) -> tuple[Line, ...]:
    """What would change in the step's file; empty for a step without one and for equal texts."""
    if step.file is None:
        return ()
    path = visible(step.file.path)
    if step.current is None:
        return (
            Line("head", f"+++ {path}"),
            Line("note", "the text on the host was not read; all that would be written follows"),
            *(Line("add", f"+{visible(text)}") for text in step.file.content.splitlines()),
        )
    before = "/dev/null" if step.current == "" else path
    lines: list[Line] = []
    for text in difflib.unified_diff(
        step.current.splitlines(), step.file.content.splitlines(), before, path, "on the host", "declared", lineterm=""
    ):
        head = len(lines) < 2
        kind: Literal["head", "hunk", "add", "drop", "same"] = (
            "head"
            if head
            else "hunk"
            if text.startswith("@@")
            else "add"
            if text.startswith("+")
            else "drop"
            if text.startswith("-")
            else "same"
        )
        lines.append(Line(kind, visible(text).replace("\t", "  ") if head else visible(text)))
    return tuple(lines)
