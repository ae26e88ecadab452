"""What every class of facts builds on."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from kit.facts.unknown import Unknown

KIB_PER_GIB = 1024 * 1024
"""The kernel tells KiB, people declare GiB."""

T = TypeVar("T")
Fact = Annotated[T | Unknown, Field(union_mode="left_to_right")]


class FactsModel(BaseModel):
    """Frozen; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
