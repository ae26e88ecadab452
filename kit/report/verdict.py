"""How a host and a run ended, in words and one of five kinds. Pure: it repeats what is recorded and decides nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from kit.errors import Failure
from kit.plan.model import Action, Plan
from kit.record.model import HostRecord, RunRecord, RunState
from kit.report import words
from kit.report.timeline import with_shared

Kind = Literal["good", "pending", "bad", "cut", "open"]
MARKS: dict[Kind, str] = {"good": "✓", "pending": "~", "bad": "✕", "cut": "!", "open": "…"}
"""Beside the word, so that colour is never the only sign."""


@dataclass(frozen=True)
class Verdict:
    """``word`` is a host's end in two words; ``note`` the one thing to know about it."""

    kind: Kind
    word: str
    note: str = ""

    @property
    def mark(self) -> str:
        """A sign for the kind."""
        return MARKS[self.kind]


def host_verdict(host: HostRecord, run: RunRecord) -> Verdict:
    """From the recorded end; for a run without one, from what was recorded before it stopped."""
    plan = host.verify_plan or host.plan
    if host.end is not None:
        return _by_code(host.end.exit_code, host, plan)
    if run.state is RunState.RUNNING:
        return Verdict("open", "running", _last_stage(host, run))
    if run.state is not RunState.FINISHED:
        return Verdict("cut", "interrupted", _last_stage(host, run))
    if failures := host_failures(host, ()):
        return Verdict("bad", "failed", short(failures[0]))
    if plan is None:
        return Verdict("cut", "not verified", "no plan was recorded")
    if plan.refused:
        return _by_code(4, host, plan)
    return _by_code(3 if plan.pending else 0, host, plan)


def run_headline(run: RunRecord) -> str:
    """``3 hosts: 1 as declared, 1 refused, 1 unreachable``."""
    verdicts = [host_verdict(host, run) for host in run.hosts.values()]
    if not verdicts:
        return {RunState.INTERRUPTED: "Interrupted", RunState.UNREADABLE: "Unreadable record"}.get(run.state, "No host")
    if len(verdicts) == 1:
        return f"{next(iter(run.hosts))}: {verdicts[0].word}"
    counts = Counter(verdict.word for verdict in verdicts)
    return f"{len(verdicts)} hosts: {', '.join(f'{count} {word}' for word, count in counts.most_common())}"


def host_failures(host: HostRecord, of_run: tuple[Failure, ...]) -> tuple[Failure, ...]:
    """Every failure of a host, once each: its end's, its stages', and those of the run that name it."""
    named = [f for f in of_run if f.where == host.name or f.where.startswith((f"{host.name}:", f"{host.name} "))]
    found = [
        *(host.end.failures if host.end else ()),
        *named,
        *(f for stage in host.stages for f in stage.failures),
        *(host.recap.failures if host.recap else ()),
    ]
    return tuple(dict.fromkeys(found))


def short(one: Failure) -> str:
    """A failure for a table cell; the whole of it is told elsewhere."""
    return f"{one.code}: {one.found or one.where}"


def refusal_codes(host: HostRecord) -> frozenset[str]:
    """Codes of failures that only repeat a refused step."""
    plan = host.verify_plan or host.plan
    return frozenset(f"plan.{step.id}" for step in plan.of(Action.REFUSE)) if plan else frozenset()


def _by_code(exit_code: int, host: HostRecord, plan: Plan | None) -> Verdict:
    note = words.plan_summary(plan) if plan else ""
    if exit_code == 0:
        kept = plan is not None and not plan.refused and not plan.pending
        changed = len(host.plan.of(Action.CHANGE)) if host.plan and host.verify_plan else 0
        if changed and kept and plan is not None:
            note = f"{changed} changed, then verified: all {len(plan.steps)} steps are as declared"
        return Verdict("good", "as declared" if kept else "ok", note)
    if exit_code == 3:
        return Verdict("pending", "change pending", note)
    failures = host_failures(host, ())
    if failures and all(f.code.startswith("outside.test_") for f in failures):
        note = f"{note}; seen from outside: {len(failures)} failed"
    elif exit_code != 4 and failures:
        note = short(failures[0])
    return Verdict("bad", words.outcome(exit_code), note)


def _last_stage(host: HostRecord, run: RunRecord) -> str:
    stages = with_shared(host, run)
    if not stages:
        return "before its first stage"
    last = stages[-1]
    return f"in stage {last.name}" if last.outcome == "unfinished" else f"after stage {last.name}"
