"""What the terminal can show, and turning rich renderables into text for it. The one place that looks at the terminal."""

from __future__ import annotations

import io
import os
import shutil
import sys
from dataclasses import dataclass

from rich.console import Console, RenderableType

NARROWEST, WIDEST = 32, 140


@dataclass(frozen=True)
class Look:
    """How to write. Colour is never the only sign of anything."""

    width: int = 100
    colour: bool = False


def look() -> Look:
    """That of standard output. No colour when it is not a terminal, ``NO_COLOR`` is set or ``TERM`` is ``dumb``."""
    tty = sys.stdout.isatty()
    colour = tty and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    width = shutil.get_terminal_size((100, 24)).columns
    return Look(min(WIDEST, max(NARROWEST, width)), colour)


def to_text(renderable: RenderableType, where: Look) -> str:
    """Plain text, with ANSI colour where the terminal has it; no trailing spaces or newline."""
    console = Console(
        file=io.StringIO(),
        width=where.width,
        force_terminal=where.colour,
        color_system="standard" if where.colour else None,
        no_color=not where.colour,
        highlight=False,
        markup=False,
        emoji=False,
        legacy_windows=False,
    )
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()).rstrip("\n")
