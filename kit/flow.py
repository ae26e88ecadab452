"""The stages in order. A newcomer starts here.

    spec -> facts -> plan -> apply -> verify, a record after each

Every verb takes targets (see :mod:`kit.spec.select`) and returns an :class:`~kit.outcome.Outcome`; nothing here prints or exits.
"""

from __future__ import annotations

import getpass
import logging
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kit import paths
from kit.apply import ansible, hostcheck
from kit.apply.result import ApplyEvent, ApplyResult
from kit.apply.ssh import Remote, host_lock
from kit.apply.variables import role_variables
from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.errors import ExitCode, Failure, KitError, failure
from kit.facts.collect import collect
from kit.facts.measure import measure_cores as measure
from kit.facts.model import Facts
from kit.facts.unknown import is_known
from kit.outcome import HostOutcome, Outcome
from kit.plan.make import make_plan
from kit.plan.model import Action, Plan
from kit.plan.wanted import wanted
from kit.record.store import Run
from kit.report import metrics, text
from kit.report.html import render
from kit.spec.target import Target

log = logging.getLogger("kit.flow")

FABRIC_POLL_S = 2.0
REBOOT_WAIT_S = 1200.0
"""Longest wait for a host to answer ssh after a reboot; a server with 2 TiB of RAM trains memory for minutes."""


@dataclass
class _Work:
    """One host on its way through the stages."""

    target: Target
    facts: Facts | None = None
    plan: Plan | None = None
    failures: list[Failure] = field(default_factory=list)
    exit_code: int = ExitCode.OK
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.target.spec.name

    def fail(self, error: KitError) -> None:
        """Keep every failure; the first exit code stands."""
        self.failures += error.failures
        self.exit_code = self.exit_code or error.exit_code

    @property
    def alive(self) -> bool:
        return self.exit_code == ExitCode.OK


def _each(work: Sequence[_Work], forks: int, do: Callable[[_Work], None]) -> None:
    """Run ``do`` for each host at once; a host's KitError ends that host alone."""

    def guarded(one: _Work) -> None:
        try:
            do(one)
        except KitError as error:
            one.fail(error)

    if not work:
        return
    with ThreadPoolExecutor(max_workers=min(forks, len(work)), thread_name_prefix="host") as pool:
        list(pool.map(guarded, work))


def _remote(target: Target) -> Remote:
    return Remote(target.spec.connection, target.spec.name, target.fleet.ssh_connect_timeout_s)


def _probe(one: _Work, run: Run, label: str = "facts") -> Facts:
    """Read the host once and record what was read."""
    started = time.monotonic()
    with run.host(one.name).stage(label):
        facts, raw = collect(one.target, wanted(one.target.spec, one.target.lock), _remote(one.target))
        run.host(one.name).put(label, facts)
        run.host(one.name).put(f"{label}-raw", raw)
    log.info("%s: probed in %.1f s", one.name, time.monotonic() - started)
    return facts


def _fabric_pending(facts: Facts) -> bool:
    return is_known(facts.gpu) and is_known(facts.gpu.gpus) and any(g.fabric_state == "in_progress" for g in facts.gpu.gpus)


def _look(one: _Work, run: Run, label: str = "") -> None:
    """Facts and plan. The NVLink fabric trains for a while after a boot, so it is given the spec's bounded wait."""
    spec = one.target.spec
    one.facts = _probe(one, run, f"{label}facts")
    deadline = time.monotonic() + spec.gpus.fabric_wait_s
    while spec.gpus.fabric == "completed" and _fabric_pending(one.facts) and time.monotonic() < deadline:
        log.info("%s: NVLink fabric in progress, %.0f s of patience left", one.name, deadline - time.monotonic())
        time.sleep(min(FABRIC_POLL_S, max(0.0, deadline - time.monotonic())))
        one.facts = _probe(one, run, f"{label}facts")
    with run.host(one.name).stage(f"{label}plan"):
        one.plan = make_plan(spec, one.target.lock, one.facts)
        run.host(one.name).put(f"{label}plan", one.plan)
        _record_cores(one, run)
    log.info("%s: %s", one.name, text.plan_summary(one.plan))


def _record_cores(one: _Work, run: Run) -> None:
    """The core decision and who sits where: the report draws it."""
    assert one.facts is not None
    decision = decide(one.target.spec.cpu, one.facts.cpu)
    run.host(one.name).put("cores", decision)
    if decision.refused is None:
        run.host(one.name).put("assignment", assign(one.target.spec.cpu, decision, one.facts))


def _judge(one: _Work) -> None:
    """Exit code of a plan that is only looked at."""
    assert one.plan is not None
    one.result["steps"] = text.steps_json(one.plan)
    one.result["plan_digest"] = one.plan.digest()
    if one.plan.refused:
        one.exit_code = ExitCode.REFUSED
        one.failures += [
            failure(f"plan.{s.id}", f"{one.name}: {s.id}", s.expected, s.found or s.reason, s.next)
            for s in one.plan.of(Action.REFUSE)
        ]
    elif one.plan.pending:
        one.exit_code = ExitCode.CHANGE_PENDING


@contextmanager
def _recorded(task: str, targets: Sequence[Target]) -> Iterator[tuple[Run, list[_Work]]]:
    """A run's record around its work. The spec is recorded first, so a full disk stops a run before it touches a host."""
    run = Run.create(task, sys.argv, paths.runs_dir())
    work = [_Work(target) for target in targets]
    for one in work:
        run.host(one.name).put("spec", one.target.spec)
        run.host(one.name).put("lock", one.target.lock)
    try:
        yield run, work
    except BaseException as error:
        run.finish(getattr(error, "exit_code", ExitCode.INTERNAL), [failure("run.ended", task, "a finished run", repr(error))])
        raise


def _finish(task: str, run: Run, work: Sequence[_Work], body: str, failures: Sequence[Failure] = ()) -> Outcome:
    hosts = {
        one.name: HostOutcome(one.exit_code, {**one.result, "record": str(run.host(one.name).path)}, tuple(one.failures))
        for one in work
    }
    worst = max((one.exit_code for one in work), default=0)
    run.finish(worst, [f for one in work for f in one.failures], {one.name: one.exit_code for one in work})
    report = run.path / "report.html"
    run.put_text("report.html", render(run.path))
    table = text.host_table(hosts) if len(work) > 1 else ""
    where = f"record {run.path}\nreport {report}"
    result = {"record": str(run.path), "report": str(report)}
    return Outcome(task, hosts, result=result, failures=tuple(failures), text="\n".join(x for x in (body, table, where) if x))


def _forks(targets: Sequence[Target]) -> int:
    return max((t.fleet.forks for t in targets), default=1)


def probe(targets: Sequence[Target], measure_cores: bool = False) -> Outcome:
    """Facts of each host; ``measure_cores`` loads the machine and is refused on a joined host."""
    with _recorded("probe", targets) as (run, work):

        def do(one: _Work) -> None:
            one.facts = _probe(one, run)
            if measure_cores:
                with run.host(one.name).stage("measure-cores"):
                    measure(one.target, one.facts, _remote(one.target))
                one.facts = _probe(one, run)
            one.result["facts"] = one.facts.model_dump(mode="json")

        _each(work, _forks(targets), do)
        body = "\n".join(text.facts_summary(one.name, one.facts) for one in work if one.facts)
        return _finish("probe", run, work, body)


def plan(targets: Sequence[Target], verbose: bool = False, task: str = "plan") -> Outcome:
    """The dry run. Exit 3 when something would change, 4 when something is refused."""
    with _recorded(task, targets) as (run, work):

        def do(one: _Work) -> None:
            _look(one, run)
            _judge(one)

        _each(work, _forks(targets), do)
        body = "\n".join(text.plan_text(one.plan, verbose) for one in work if one.plan)
        return _finish(task, run, work, body)


def drift(targets: Sequence[Target], textfile: Path | None = None) -> Outcome:
    """Like plan, for cron; writes a Prometheus textfile when asked."""
    outcome = plan(targets, task="drift")
    if textfile is not None:
        metrics.write(textfile, outcome)
    return outcome


def verify(targets: Sequence[Target], junit: Path | None = None) -> Outcome:
    """Probe and plan again, then the outside suite. Changes nothing."""
    with _recorded("verify", targets) as (run, work):

        def do(one: _Work) -> None:
            _look(one, run)
            _judge(one)
            with run.host(one.name).stage("outside"):
                outside = hostcheck.run(one.target, run.host(one.name).path)
            one.result["outside"] = outside.summary()
            if not outside.ok:
                one.failures += outside.failures
                one.exit_code = one.exit_code or ExitCode.GATE_FAILED

        # The outside suite is a pytest process each: two at a time keeps the control machine small.
        _each(work, min(2, _forks(targets)), do)
        if junit is not None:
            hostcheck.merge_junit([run.host(one.name).path for one in work], junit)
        body = "\n".join(text.plan_text(one.plan, False) for one in work if one.plan)
        return _finish("verify", run, work, body + "\n" + text.outside_table({w.name: w.result.get("outside", {}) for w in work}))


def provision(targets: Sequence[Target], check: bool = False, reboot: bool = False, verbose: bool = False) -> Outcome:
    """Plan, apply what would change, verify. ``check`` is the dry run. Reboots happen only with ``reboot``."""
    if check:
        return plan(targets, verbose)
    with _recorded("provision", targets) as (run, work), ExitStack() as locks:
        who = f"{getpass.getuser()}@{socket.gethostname()} provision {run.id}"

        def look(one: _Work) -> None:
            locks.enter_context(host_lock(_remote(one.target), who))
            _look(one, run)
            assert one.plan is not None
            one.result["planned"] = text.plan_summary(one.plan)
            if one.plan.refused:
                _judge(one)

        _each(work, _forks(targets), look)
        changing = [
            one for one in work if one.alive and one.plan and (one.plan.of(Action.CHANGE) or (reboot and one.plan.pending))
        ]
        bodies = [text.plan_text(one.plan, verbose) for one in work if one.plan]
        if changing:
            _apply(changing, run, reboot)
        for one in work:
            if one.alive and one not in changing:
                _judge(one)
        return _finish("provision", run, work, "\n".join(bodies))


def _apply(changing: Sequence[_Work], run: Run, reboot: bool) -> None:
    """Ansible on the hosts that need it, in one run; then look at each again: it must have come out as planned."""
    jobs: dict[Target, Plan] = {}
    for one in changing:
        assert one.plan is not None
        jobs[one.target] = one.plan
        run.host(one.name).put("apply", role_variables(one.plan, reboot=reboot))
    results = ansible.apply(jobs, run.path, _tell, _forks(list(jobs)), reboot=reboot)

    def confirm(one: _Work) -> None:
        result = results[one.name]
        run.host(one.name).put("recap", result)
        one.result["apply"] = {"changed": result.changed, "seconds": result.seconds}
        if result.failures:
            raise KitError(list(result.failures), ExitCode(result.exit_code))
        _after(one, run, result, reboot)

    _each(changing, _forks(list(jobs)), confirm)


def _after(one: _Work, run: Run, result: ApplyResult, reboot: bool) -> None:
    assert one.plan is not None
    before = one.plan
    rebooted = reboot and bool(before.of(Action.REBOOT))
    _look(one, run, "verify-")
    after = one.plan
    if rebooted and after.boot_id == before.boot_id:
        raise KitError(
            failure(
                "reboot.not_proven", one.name, "a new boot id", after.boot_id, "look at the host's console; it did not reboot"
            ),
            ExitCode.APPLY_FAILED,
        )
    _judge(one)
    stuck = after.of(Action.CHANGE)
    if stuck:
        one.exit_code = ExitCode.APPLY_FAILED
        one.failures += [
            failure("apply.not_converged", f"{one.name}: {s.id}", s.expected, s.found or s.reason, s.next) for s in stuck
        ]


def _tell(event: ApplyEvent) -> None:
    log.info("%s: %s", event.host, event.line())
