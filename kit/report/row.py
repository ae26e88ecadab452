"""A fact as a row for people: what was declared beside what was read. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kit.facts.base import KIB_PER_GIB
from kit.facts.unknown import Unknown, is_known
from kit.report.clean import one_line
from kit.report.words import grouped


@dataclass(frozen=True)
class Row:
    """One fact."""

    label: str
    found: str
    declared: str = ""
    """What the spec says about it; empty when the spec says nothing."""
    verified: bool = True
    """False when some of it could not be read."""


@dataclass(frozen=True)
class Area:
    """Facts that belong together. ``long`` ones are folded away at first."""

    title: str
    rows: tuple[Row, ...]
    long: bool = False


def row(label: str, fact: Any, declared: object = "", text: Callable[[Any], object] = str) -> Row:
    """One fact as a row; ``text`` formats it when it is known."""
    if not is_known(fact):
        return Row(label, not_verified(fact), one_line(yes(declared)), verified=False)
    return Row(label, one_line(_shown(fact, text)), one_line(yes(declared)))


def not_verified(fact: Unknown) -> str:
    """How a fact that could not be read is shown."""
    return f"not verified: {one_line(fact.unknown)}"


def gib(kib: int) -> str:
    """KiB as GiB, or MiB below one GiB."""
    return f"{kib / KIB_PER_GIB:.1f} GiB" if kib >= KIB_PER_GIB else f"{kib / 1024:.0f} MiB"


def yes(value: object) -> object:
    return ("yes" if value else "no") if isinstance(value, bool) else value


def _shown(fact: Any, text: Callable[[Any], object]) -> object:
    return yes(fact) if text is str else text(fact)


def each(
    label: str, items: Sequence[tuple[int, Any]], declared: object, one: str, many: str, text: Callable[[Any], object]
) -> Row:
    """A fact of every GPU or CPU, equal values together."""
    values = [(index, one_line(_shown(fact, text)) if is_known(fact) else not_verified(fact)) for index, fact in items]
    return Row(label, grouped(values, one, many), one_line(yes(declared)), all(is_known(fact) for _, fact in items))
