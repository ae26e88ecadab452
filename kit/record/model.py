"""The shape of a record on disk, and of what reading one gives. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from kit.apply.result import ApplyEvent, ApplyResult
from kit.cores.model import Assignment, CoreDecision
from kit.errors import Failure
from kit.facts.model import Facts
from kit.plan.model import Plan
from kit.spec.model import HostSpec, Lock

RUN = "run.json"
STAGES = "stages.jsonl"
EVENTS = "events.jsonl"
OUTSIDE = "outside.junit.xml"
"""Written by :mod:`kit.apply.hostcheck`."""
REPORT = "report.html"
DERIVED = frozenset({REPORT})
"""Files made from the record, which can be made again: no part of the record and not in its sums."""


class _Frozen(BaseModel):
    # Written by this version, read by later and earlier ones: what is not known is left out, not an error.
    model_config = ConfigDict(frozen=True, extra="ignore")


class RunState(StrEnum):
    """Derived when read, never stored: a killed process cannot say that it was killed."""

    FINISHED = "finished"
    RUNNING = "running"
    INTERRUPTED = "interrupted"
    """Not finished, and the process that wrote it is gone."""
    UNREADABLE = "unreadable"


class Control(_Frozen):
    """The machine the command ran on."""

    hostname: str
    system: str
    kernel: str
    cpus: int


class HostEnd(_Frozen):
    """How one host ended."""

    exit_code: int
    failures: tuple[Failure, ...] = ()


class RunDocument(_Frozen):
    """``run.json``: written at the start, and again at the end."""

    schema_version: Literal[1] = 1
    id: str
    task: str
    argv: tuple[str, ...]
    started: str
    """UTC, ISO 8601, the control machine's clock."""
    finished: str | None = None
    seconds: float | None = None
    exit_code: int | None = None
    failures: tuple[Failure, ...] = ()
    hosts: dict[str, HostEnd] = {}
    kit_version: str
    git_commit: str | None
    """With ``+changes`` when tracked files differ from it; null when this is no git checkout."""
    control: Control
    python: str
    packages: dict[str, str]
    """Versions of what decides and writes: ansible-core, ansible-runner, pydantic."""
    pid: int
    pid_started: int
    """Clock ticks after boot at which that process started: a pid alone is used again."""
    boot_id: str


class StageLine(_Frozen):
    """One line of ``stages.jsonl``: a stage begins, or ends."""

    stage: str
    event: Literal["begin", "end"]
    at: str
    """UTC, ISO 8601."""
    offset_s: float
    """Seconds after the run started, by a clock that does not jump."""
    seconds: float | None = None
    outcome: Literal["ok", "failed"] | None = None
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class Stage:
    """A stage as read back."""

    name: str
    offset_s: float
    seconds: float | None
    outcome: Literal["ok", "failed", "unfinished"]
    failures: tuple[Failure, ...] = ()


@dataclass(frozen=True)
class OutsideCase:
    """One assertion of the outside suite (JUnit)."""

    name: str
    outcome: Literal["passed", "failed", "skipped"]
    message: str = ""
    """Why it did not pass, in one sentence."""
    what: str = ""
    """What is not as it must be; with ``expected`` and ``found``. Empty when the assertion itself broke."""
    expected: str = ""
    found: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class HostRecord:
    """All that is recorded about one host. A document that is not there is None; one that is there but cannot be
    read is None too, and ``problems`` says so."""

    name: str
    spec: HostSpec | None = None
    lock: Lock | None = None
    facts: Facts | None = None
    plan: Plan | None = None
    verify_facts: Facts | None = None
    verify_plan: Plan | None = None
    cores: CoreDecision | None = None
    assignment: Assignment | None = None
    apply: Mapping[str, Any] | None = None
    recap: ApplyResult | None = None
    events: tuple[ApplyEvent, ...] = ()
    outside: tuple[OutsideCase, ...] = ()
    """What the outside suite asserted; empty when it did not run."""
    stages: tuple[Stage, ...] = ()
    end: HostEnd | None = None
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecord:
    """One run as read back."""

    path: Path
    state: RunState
    document: RunDocument | None
    hosts: Mapping[str, HostRecord] = field(default_factory=dict)
    stages: tuple[Stage, ...] = ()
    """Stages of the run as a whole."""
    problems: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name


@dataclass(frozen=True)
class RunSummary:
    """A line of ``record.list``."""

    id: str
    path: Path
    state: RunState
    task: str = ""
    started: str = ""
    seconds: float | None = None
    exit_code: int | None = None
    hosts: tuple[str, ...] = ()
    problem: str = ""
    """For an unreadable run: why."""


@dataclass(frozen=True)
class SumFinding:
    """One file that is not as the sums say."""

    path: str
    kind: Literal["changed", "missing", "extra", "unsealed", "partial", "secret", "unreadable"]
    """``unsealed``: written after the last sums of a run that was cut off; ``partial``: left by a killed write."""
    detail: str = ""


@dataclass(frozen=True)
class Verification:
    """Whether a record is as it was written."""

    id: str
    state: RunState
    checked: int
    findings: tuple[SumFinding, ...]

    @property
    def ok(self) -> bool:
        """No file is changed, missing, added or unreadable, and none holds a secret. A cut-off run can be ok."""
        return not any(f.kind not in ("unsealed", "partial") for f in self.findings)
