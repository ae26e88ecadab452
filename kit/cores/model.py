"""What the core decision and the assignment look like. JSON-able: the report draws them. A core is named by its lowest CPU."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Answer(StrEnum):
    """What one source says about fast and slow cores."""

    SPLIT = "split"
    """Two classes with a clear gap."""
    FLAT = "flat"
    """All cores alike."""
    AMBIGUOUS = "ambiguous"
    """Neither: a smear, or hints that disagree among themselves."""
    OFF = "off"
    """The source exists and is switched off (Priority Core Turbo supported, not enabled)."""
    UNKNOWN = "unknown"
    """Could not be read for every core."""


class Source(_Frozen):
    """One source's answer, with what it saw."""

    name: str
    """``hint``, ``speed_select`` or ``measured``."""
    answer: Answer
    fast_cores: tuple[int, ...] = ()
    """Only with ``split``."""
    fast_mhz: float | None = None
    """Lowest of the fast class, where the source gives a frequency; with ``flat``, of all."""
    slow_mhz: float | None = None
    """Highest of the slow class, likewise."""
    text: str
    """What was seen, for a person."""


class CoreDecision(_Frozen):
    """Which physical cores are fast, or why that is not decided."""

    fast_cores: tuple[int, ...]
    """Ascending; empty when refused."""
    refused: str | None
    reason: str
    """One sentence, for ``refused`` the same with everything that was seen."""
    evidence: tuple[str, ...]
    """Names of the sources that say so; empty when refused."""
    sources: tuple[Source, ...]
    """All three, always."""
    can_enable_pct: bool
    """Priority Core Turbo is supported and not in force: switching it on is a change that could make a flat host split."""


class Seat(_Frozen):
    """One process on one physical core and all its threads."""

    name: str
    """``scheduler 0``, ``detokenizer``, ``tokenizer``."""
    core: int
    cpus: tuple[int, ...]
    """The core with its siblings, ascending."""
    node: int | None
    """None: not verified."""
    gpu: int | None = None
    """For a scheduler: its GPU's index, which is its rank."""
    fast: bool
    near_gpu: bool | None = None
    """For a scheduler: whether it sits in its GPU's NUMA node; None: not verified."""
    reason: str


class Assignment(_Frozen):
    """Who runs where."""

    schedulers: tuple[Seat, ...]
    """By rank. Empty when the GPUs are not known, or there are fewer fast cores than GPUs."""
    detokenizer: Seat | None
    tokenizer: Seat | None
    rest_cpus: tuple[int, ...]
    """For every other process of the engine: not a seat above, not the system's."""
    os_cpus: tuple[int, ...]
    """For the operating system and interrupts: slow cores."""
    serving_cpus: tuple[int, ...]
    """Everything but ``os_cpus``: where no interrupt should go."""
    reason: str
