"""``Unknown``: a fact that could not be read. Never zero, never empty, never equal to anything."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypeIs

T = TypeVar("T")


class Unknown(BaseModel):
    """In JSON: ``{"unknown": "why it could not be read"}``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    unknown: str

    def __eq__(self, other: object) -> bool:
        return False

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise TypeError(f"an unknown fact was used as a truth value ({self.unknown}); test with is_known() first")

    def __str__(self) -> str:
        return f"not verified ({self.unknown})"


def is_known(value: T | Unknown) -> TypeIs[T]:
    """Whether a fact was read."""
    return not isinstance(value, Unknown)


def show(value: Any) -> str:
    """For people: the value, or why it is not known."""
    return str(value)
