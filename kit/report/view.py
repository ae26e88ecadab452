"""What the page shows, as plain values: the templates only place them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kit.apply.result import ApplyEvent
from kit.cores.model import Seat, Source
from kit.errors import Failure
from kit.facts.model import Facts
from kit.plan.model import Action, Step
from kit.record.model import HostRecord, OutsideCase, RunRecord, RunState, SumFinding, Verification
from kit.report import rows, seats, words
from kit.report.clean import one_line
from kit.report.coremap import NARROW, WIDE, core_map_svg, summary
from kit.report.diff import Line, file_diff
from kit.report.origin import host_origin, run_origin, sums_text
from kit.report.row import Area
from kit.report.timeline import Bar, bars, end_s, total, with_shared
from kit.report.verdict import Verdict, host_failures, host_verdict, refusal_codes, run_headline

_RESTLESS = frozenset(
    {"Read", "Up for", "Power drawn", "Temperature", "Available", "SM clock now", "Clock held back by", "Listening"}
)
"""Facts that differ between any two readings: no news after an apply."""


@dataclass(frozen=True)
class StepView:
    """A step of the plan with its diff, or several that say the same."""

    step: Step
    symbol: str
    diff: tuple[Line, ...]
    ids: tuple[str, ...]


@dataclass(frozen=True)
class AreaView:
    """Facts of one area."""

    area: Area
    unverified: int


@dataclass(frozen=True)
class Difference:
    """A fact before and after."""

    area: str
    label: str
    before: str
    after: str


@dataclass(frozen=True)
class CoreView:
    """The core map in two sizes, its words, and why."""

    wide: str
    narrow: str
    words: str
    reasons: tuple[str, ...]
    sources: tuple[Source, ...]
    seats: tuple[tuple[Seat, str], ...]
    """With the seat's CPUs as text."""


@dataclass(frozen=True)
class HostView:
    """One host's part of the page."""

    name: str
    ident: str
    verdict: Verdict
    seconds: str
    changes: str
    failures: tuple[Failure, ...]
    refused: tuple[StepView, ...]
    planned: tuple[StepView, ...]
    kept: tuple[StepView, ...]
    plan_summary: str
    verified: str
    outside: str
    outside_cases: tuple[OutsideCase, ...]
    """Those that did not pass."""
    differences: tuple[Difference, ...]
    bars: tuple[Bar, ...]
    tasks: tuple[ApplyEvent, ...]
    tasks_quiet: int
    areas: tuple[AreaView, ...]
    core: CoreView | None
    origin: tuple[tuple[str, str], ...]
    problems: tuple[str, ...]

    @property
    def blank(self) -> bool:
        """Whether nothing was read, planned, changed or verified."""
        return not (self.plan_summary or self.tasks or self.tasks_quiet or self.areas or self.verified or self.outside)


@dataclass(frozen=True)
class PageView:
    """The page."""

    title: str
    headline: str
    state: str
    state_kind: str
    state_lead: str
    state_rest: str
    task: str
    started: str
    took: str
    failures: tuple[Failure, ...]
    hosts: tuple[HostView, ...]
    bars: tuple[Bar, ...]
    origin: tuple[tuple[str, str], ...]
    sums: tuple[tuple[str, str], ...]
    sums_text: str
    sums_ok: bool
    findings: tuple[SumFinding, ...]
    problems: tuple[str, ...]


def page(run: RunRecord, check: Verification, sums: Mapping[str, str]) -> PageView:
    """Everything on the page about one run. ``check`` and ``sums`` are the record's, read at the same time."""
    document = run.document
    of_run = document.failures if document else ()
    length_s = end_s(run)
    hosts = sorted((_host(host, run, of_run, number, length_s) for number, host in enumerate(run.hosts.values())), key=_trouble)
    told = {failure for host in run.hosts.values() for failure in host_failures(host, of_run)}
    codes = {code for host in run.hosts.values() for code in refusal_codes(host)}
    kind, lead, rest = _state(run)
    return PageView(
        title=f"{document.task if document else 'run'} {run.id}",
        headline=run_headline(run),
        state=run.state.value,
        state_kind=kind,
        state_lead=lead,
        state_rest=rest,
        task=document.task if document else "not known",
        started=document.started if document else "not known",
        took=words.seconds(document.seconds) if document and document.seconds is not None else "",
        failures=tuple(f for f in of_run if f not in told and f.code not in codes),
        hosts=tuple(hosts),
        bars=() if run.hosts else bars(run.stages, length_s),
        origin=run_origin(run),
        sums=tuple(sorted((name, digest) for name, digest in sums.items())),
        sums_text=sums_text(check),
        sums_ok=check.ok,
        findings=check.findings,
        problems=run.problems,
    )


def _state(run: RunRecord) -> tuple[str, str, str]:
    document = run.document
    if run.state is RunState.FINISHED and document is not None and document.exit_code is not None:
        kind = "good" if document.exit_code == 0 else "pending" if document.exit_code == 3 else "bad"
        return kind, f"Finished, exit {document.exit_code}: {words.outcome(document.exit_code)}", ""
    if run.state is RunState.RUNNING:
        return "open", "Still running when this page was made", "What follows is what was recorded until then."
    if run.state is RunState.INTERRUPTED:
        return (
            "cut",
            "Interrupted",
            "The process that wrote this record is gone and never said how it ended. What follows is what it had recorded; "
            "whatever it did after that is not known. Run the command again: it looks at the host afresh.",
        )
    return "bad", "The record of this run cannot be read", "What could be read follows."


def _trouble(host: HostView) -> tuple[int, str]:
    """Hosts that need somebody come first."""
    return ("bad", "cut", "open", "pending", "good").index(host.verdict.kind), host.name


def _host(host: HostRecord, run: RunRecord, of_run: tuple[Failure, ...], number: int, length_s: float) -> HostView:
    last = host.verify_plan or host.plan
    refused = last.of(Action.REFUSE) if last else ()
    plan = host.plan or host.verify_plan
    tasks = host.recap.events if host.recap else host.events
    loud = tuple(task for task in tasks if task.status not in ("ok", "skipped"))
    codes = refusal_codes(host)
    return HostView(
        name=one_line(host.name),
        ident=f"host-{number}",
        verdict=host_verdict(host, run),
        seconds=total(with_shared(host, run)),
        changes=_changes(host),
        # Each is with the assertions below; above them comes what the plan says, where it says that something is to change.
        failures=tuple(
            f
            for f in host_failures(host, of_run)
            if f.code not in codes and not (f.code.startswith("outside.test_") and last and (last.refused or last.pending))
        ),
        refused=tuple(map(_step, words.alike(refused))),
        planned=tuple(map(_step, words.alike(s for s in plan.steps if s.action in (Action.CHANGE, Action.REBOOT))))
        if plan
        else (),
        kept=tuple(_step((step,)) for step in plan.of(Action.KEEP)) if plan else (),
        plan_summary=words.plan_summary(plan) if plan else "",
        verified=_verified(host),
        outside=_outside(host.outside),
        outside_cases=tuple(case for case in host.outside if case.outcome != "passed"),
        differences=_differences(host),
        bars=bars(with_shared(host, run), length_s),
        tasks=loud,
        tasks_quiet=len(tasks) - len(loud),
        areas=_areas(host.facts or host.verify_facts, host),
        core=_core(host, number),
        origin=host_origin(host),
        problems=host.problems,
    )


def _step(same: tuple[Step, ...]) -> StepView:
    step = same[0]
    return StepView(step, words.SYMBOLS[step.action], file_diff(step), tuple(s.id for s in same))


def _changes(host: HostRecord) -> str:
    if host.recap is not None:
        steps = len(host.plan.of(Action.CHANGE)) if host.plan else 0
        return f"{steps} steps, {host.recap.changed} tasks"
    pending = len(host.plan.of(Action.CHANGE)) + len(host.plan.of(Action.REBOOT)) if host.plan else 0
    return f"{pending} pending" if pending else "0" if host.plan else "not known"


def _verified(host: HostRecord) -> str:
    plan = host.verify_plan
    if plan is None:
        settled = host.plan is not None and not host.plan.refused and not host.plan.pending
        return (
            "All was as declared at the first look, so nothing was applied and there was nothing to look at again."
            if settled
            else ""
        )
    if not plan.refused and not plan.pending:
        return f"Probed and planned again: all {len(plan.steps)} steps are as declared."
    return f"Probed and planned again: {words.plan_summary(plan)}. The host is not as declared."


def _outside(cases: Sequence[OutsideCase]) -> str:
    """Skipped is told apart: it is never passed."""
    if not cases:
        return ""
    counts = {outcome: sum(case.outcome == outcome for case in cases) for outcome in ("passed", "failed", "skipped")}
    return f"Seen from outside by the test suite: {', '.join(f'{count} {outcome}' for outcome, count in counts.items())}."


def _areas(facts: Facts | None, host: HostRecord) -> tuple[AreaView, ...]:
    if facts is None:
        return ()
    return tuple(AreaView(area, sum(not row.verified for row in area.rows)) for area in rows.areas(facts, host.spec) if area.rows)


def _differences(host: HostRecord) -> tuple[Difference, ...]:
    if host.facts is None or host.verify_facts is None:
        return ()
    before = {(area.title, row.label): row.found for area in rows.areas(host.facts) for row in area.rows}
    return tuple(
        Difference(area.title, row.label, before.get((area.title, row.label), "not asked"), row.found)
        for area in rows.areas(host.verify_facts)
        for row in area.rows
        if row.label not in _RESTLESS and before.get((area.title, row.label)) != row.found
    )


def _turbo_to_come(host: HostRecord) -> tuple[str, ...]:
    """The decision on cores holds for the host as the plan leaves it."""
    plan = host.verify_plan or host.plan
    if plan is None or all(s.id != "cpu.priority_core_turbo" or s.action is not Action.CHANGE for s in plan.steps):
        return ()
    return ("Priority Core Turbo was off at this look: what follows is how it will be once the plan is applied.",)


def _core(host: HostRecord, number: int) -> CoreView | None:
    facts = host.verify_facts or host.facts
    if facts is None:
        return None
    cells = seats.cells(facts.cpu, host.cores, host.assignment)
    title = f"Core map of {host.name}"
    return CoreView(
        core_map_svg(cells, title, f"cm{number}w", WIDE, styled=False),
        core_map_svg(cells, title, f"cm{number}n", NARROW, styled=False),
        summary(cells),
        _turbo_to_come(host) + tuple(seats.reasons(host.cores, host.assignment)),
        host.cores.sources if host.cores else (),
        tuple((seat, words.ranges(seat.cpus)) for seat in seats.seated(host.assignment)) if host.assignment else (),
    )
