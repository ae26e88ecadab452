"""A run over many hosts at once: each host's work, its record, and the outcome that all of it makes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from kit import paths
from kit.apply.ssh import Remote, host_lock
from kit.cli.exit import of_findings, of_hosts
from kit.errors import Failure, KitError
from kit.facts.model import Facts
from kit.outcome import HostOutcome, Outcome
from kit.plan.model import Plan
from kit.record import environment, read
from kit.record.store import Run
from kit.report import text
from kit.spec.target import Target


@dataclass
class Work:
    """One host on its way through the stages."""

    target: Target
    facts: Facts | None = None
    plan: Plan | None = None
    failures: list[Failure] = field(default_factory=list)
    codes: set[int] = field(default_factory=set)
    """What each thing that was found out about the host means by itself."""
    skipped: list[str] = field(default_factory=list)
    """What was not done, and why."""
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.target.spec.name

    @property
    def exit_code(self) -> int:
        """An :class:`~kit.errors.ExitCode`, or 128+N: the one of ``codes`` that comes first."""
        return of_findings(self.codes)

    def fail(self, error: KitError) -> None:
        """Keep every failure and its exit code."""
        self.failures += error.failures
        self.codes.add(int(error.exit_code))


def each(work: Sequence[Work], forks: int, do: Callable[[Work], object]) -> None:
    """Run ``do`` for each host at once; a host's KitError ends that host alone."""

    def guarded(one: Work) -> None:
        try:
            do(one)
        except KitError as error:
            one.fail(error)

    if not work:
        return
    with ThreadPoolExecutor(max_workers=min(forks, len(work)), thread_name_prefix="host") as pool:
        list(pool.map(guarded, work))


def remote(target: Target) -> Remote:
    """Commands on the target."""
    return Remote(target.spec.connection, target.spec.name, target.fleet.ssh_connect_timeout_s)


def locked(one: Work, run: Run) -> AbstractContextManager[Callable[[], None]]:
    """The host's lock for this run, as :func:`kit.apply.ssh.host_lock`; who finds it held is told who runs what."""
    return host_lock(remote(one.target), f"{environment.operator()} {run.task} {run.id}")


@contextmanager
def recorded(task: str, targets: Sequence[Target]) -> Iterator[tuple[Run, list[Work]]]:
    """A run's record around its work. The spec is recorded first, so a full disk stops a run before it touches a host."""
    with Run.create(task, sys.argv, paths.runs_dir()) as run:
        work = [Work(target) for target in targets]
        for one in work:
            run.host(one.name).put("spec", one.target.spec)
            run.host(one.name).put("lock", one.target.lock)
        yield run, work


def finish(task: str, run: Run, work: Sequence[Work], body: str) -> Outcome:
    """Close the record, write its page, and say where both are."""
    hosts = {
        one.name: HostOutcome(one.exit_code, {**one.result, "record": str(run.host(one.name).path)}, tuple(one.failures))
        for one in work
    }
    run.finish(of_hosts(one.exit_code for one in work), (), hosts)
    report = read.report(run.path)
    table = text.host_table(hosts) if len(work) > 1 else ""
    where = f"record {run.path}\nreport {report}"
    result = {"record": str(run.path), "report": str(report)}
    skipped = tuple(f"{one.name}: {line}" for one in work for line in one.skipped)
    return Outcome(task, hosts, result=result, skipped=skipped, text="\n".join(x for x in (body, table, where) if x))


def forks(targets: Sequence[Target]) -> int:
    """How many hosts at once, as their fleet says."""
    return max((t.fleet.forks for t in targets), default=1)
