"""Slots and routes. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from kit.errors import Failure

SlotName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:+-]*\z")]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, alias_generator=lambda n: n.replace("_", "-"))


class Route(StrEnum):
    """How a 148-SM GPU is admitted. An engine profile names one."""

    UPSTREAM = "upstream"
    """The plugin's own opt-in, through its slot list."""
    PATCH = "patch"
    """The 148 patch; the slot list stays the plugin's own."""


class SlotsDeclared(_Frozen):
    """``slots.yml`` of a series: what is known of the plugin's slot list from outside its source."""

    variable: str = Field(pattern=r"^[A-Z][A-Z0-9_]*\z")
    """The environment variable. Setting it *replaces* the defaults."""
    separator: str = Field(min_length=1, max_length=1)
    opt_in: SlotName
    expected_defaults: int = Field(ge=1)
    """How many defaults the plugin is said to have; another number is refused until a person looked."""
    defaults_at: str | None = None
    """``module:NAME`` of the defaults, when they cannot be found from where the variable is read."""


class Provenance(_Frozen):
    """Where the slots were read."""

    tree_sha256: str
    """Of the plugin source they come from."""
    file: str
    line: int


class Slots(_Frozen):
    """What the pinned plugin says about its slots: derived at build time and stored beside the image."""

    variable: str
    separator: str
    defaults: tuple[SlotName, ...]
    """In the plugin's order."""
    known: tuple[SlotName, ...]
    """Every slot that the plugin knows, sorted; the defaults among them."""
    provenance: Provenance


class Composed(_Frozen):
    """What the engine is started with."""

    route: Route
    environment: Mapping[str, str]
    """Empty on the patch route."""
    slots: tuple[str, ...]
    """The slots that will be active."""
    reason: str


class Refused(_Frozen):
    """Why nothing is composed: each would run stock code silently, or not start."""

    route: Route
    failures: tuple[Failure, ...]
