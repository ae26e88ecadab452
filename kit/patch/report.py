"""What a check of a series found. Pure data."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class State(StrEnum):
    """One patch against one tree."""

    APPLIES = "applies"
    ALREADY = "already"
    """The tree is as the patch would make it: upstream has it, or it was applied before."""
    CONFLICT = "conflict"
    """The tree is not what the patch was written for; ``sites`` say what was found."""
    AMBIGUOUS = "ambiguous"
    """More than one reading is possible; ``sites`` are the candidates. Nothing is guessed."""


class Held(StrEnum):
    """One post-condition."""

    HELD = "held"
    BROKEN = "broken"
    SKIPPED = "skipped"
    """Could not be looked at here; never counts as held."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Site(_Frozen):
    """A place in the source tree."""

    file: str
    """Relative to the tree, with ``/``."""
    line: int
    """From 1; 0 when it is about the whole file."""
    found: str
    """The line as it stands, trimmed."""
    note: str = ""
    """What it would become, or why it is a candidate."""


class PatchResult(_Frozen):
    """One patch's answer."""

    name: str
    state: State
    sites: tuple[Site, ...]
    reason: str
    next: str = ""


class PostResult(_Frozen):
    """One post-condition's answer."""

    patch: str
    condition: str
    held: Held
    reason: str


class PatchReport(_Frozen):
    """The whole series against one tree. ``changed`` maps a file to its bytes after the edits; empty unless all applies."""

    series: str
    series_sha256: str
    patches: tuple[PatchResult, ...]
    post_conditions: tuple[PostResult, ...] = ()

    @property
    def fits(self) -> bool:
        """Whether every patch applies or is there already, and no post-condition is broken."""
        good = all(p.state in (State.APPLIES, State.ALREADY) for p in self.patches)
        return good and all(p.held is not Held.BROKEN for p in self.post_conditions)

    @property
    def proven(self) -> bool:
        """``fits``, and every post-condition was looked at."""
        return self.fits and all(p.held is Held.HELD for p in self.post_conditions)

    @property
    def pending(self) -> bool:
        """Whether anything would be written."""
        return any(p.state is State.APPLIES for p in self.patches)
