"""The stages in order. A newcomer starts here.

    spec -> facts -> plan -> apply -> verify, a record after each

Every verb takes targets (see :mod:`kit.spec.select`) and returns an :class:`~kit.outcome.Outcome`; nothing here prints or exits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from pathlib import Path

from kit import paths
from kit.apply import ansible, hostcheck
from kit.apply.result import ApplyEvent
from kit.apply.variables import role_variables
from kit.errors import ExitCode, KitError, failure
from kit.facts.burn_in_run import burn_in as load_gpus
from kit.facts.collect import collect
from kit.facts.measure import measure_cores as measure
from kit.facts.model import Facts
from kit.facts.unknown import is_known
from kit.outcome import Outcome
from kit.plan.areas import cores
from kit.plan.make import make_plan
from kit.plan.model import Action, Plan
from kit.plan.wanted import wanted
from kit.record.model import EVENTS, OutsideCase
from kit.record.store import Run
from kit.report import cases, metrics, text
from kit.spec.load import load_usable
from kit.spec.target import Target
from kit.work import Work, each, finish, forks, locked, recorded, remote

log = logging.getLogger("kit.flow")

FABRIC_POLL_S = 2.0


def _probe(one: Work, run: Run, label: str = "facts") -> Facts:
    """Read the host once and record what was read."""
    started = time.monotonic()
    with run.host(one.name).stage(label):
        facts, raw = collect(one.target, wanted(one.target.spec), remote(one.target))
        run.host(one.name).put(label, facts)
        run.host(one.name).put(f"{label}-raw", raw)
    log.info("%s: probed in %.1f s", one.name, time.monotonic() - started)
    return facts


def _fabric_pending(facts: Facts) -> bool:
    return is_known(facts.gpu) and is_known(facts.gpu.gpus) and any(g.fabric_state == "in_progress" for g in facts.gpu.gpus)


def _look(one: Work, run: Run, label: str = "") -> Plan:
    """Facts and plan. The NVLink fabric trains for a while after a boot, so it is given the spec's bounded wait."""
    spec = one.target.spec
    facts = _probe(one, run, f"{label}facts")
    deadline = time.monotonic() + spec.gpus.fabric_wait_s
    while spec.gpus.fabric == "completed" and _fabric_pending(facts) and time.monotonic() < deadline:
        log.info("%s: NVLink fabric in progress, %.0f s of patience left", one.name, deadline - time.monotonic())
        time.sleep(min(FABRIC_POLL_S, max(0.0, deadline - time.monotonic())))
        facts = _probe(one, run, f"{label}facts")
    with run.host(one.name).stage(f"{label}plan"):
        plan = make_plan(spec, one.target.lock, facts)
        run.host(one.name).put(f"{label}plan", plan)
        _record_cores(one, run, facts)
    one.plan = plan
    log.info("%s: %s", one.name, text.plan_summary(plan))
    return plan


def _record_cores(one: Work, run: Run, facts: Facts) -> None:
    """The plan's core decision and who sits where: the report draws it."""
    outlook = cores.look(one.target.spec, facts)
    run.host(one.name).put("cores", outlook.decision)
    if outlook.assignment is not None:
        run.host(one.name).put("assignment", outlook.assignment)


def _judge(one: Work, plan: Plan) -> None:
    """What a plan says of its host: steps, exit code, a failure for each refusal."""
    one.result["steps"] = text.steps_json(plan)
    one.result["plan_digest"] = plan.digest()
    if plan.refused:
        one.codes.add(ExitCode.REFUSED)
        one.failures += [
            failure(f"plan.{s.id}", f"{one.name}: {s.id}", s.expected, s.found or s.reason, s.next)
            for s in plan.of(Action.REFUSE)
        ]
    elif plan.pending:
        one.codes.add(ExitCode.CHANGE_PENDING)


def probe(targets: Sequence[Target], measure_cores: bool = False, burn_in: bool = False, verbose: bool = False) -> Outcome:
    """Facts of each host; ``measure_cores`` and ``burn_in`` load the machine and are refused on a joined host."""
    with recorded("probe", targets) as (run, work):

        def do(one: Work) -> None:
            # A host that somebody provisions is not loaded, and one under load is not provisioned.
            with locked(one, run) if measure_cores or burn_in else nullcontext():
                one.facts = _probe(one, run)
                if measure_cores:
                    with run.host(one.name).stage("measure-cores"):
                        measure(one.target, one.facts, remote(one.target))
                if burn_in:
                    with run.host(one.name).stage("burn-in"):
                        load_gpus(one.target, one.facts, remote(one.target))
                if measure_cores or burn_in:
                    one.facts = _probe(one, run)
            one.result["facts"] = one.facts.model_dump(mode="json")

        each(work, forks(targets), do)
        body = "\n".join(text.facts_summary(one.name, one.facts, one.target.spec, verbose) for one in work if one.facts)
        return finish("probe", run, work, body)


def plan(targets: Sequence[Target], verbose: bool = False, task: str = "plan") -> Outcome:
    """The dry run. Exit 3 when something would change, 4 when something is refused."""
    with recorded(task, targets) as (run, work):

        def do(one: Work) -> None:
            _judge(one, _look(one, run))

        each(work, forks(targets), do)
        body = "\n".join(text.plan_text(one.plan, verbose) for one in work if one.plan)
        return finish(task, run, work, body)


def drift(targets: Sequence[Target], textfile: Path | None = None, verbose: bool = False) -> Outcome:
    """Like plan, for cron; writes a Prometheus textfile when asked."""
    outcome = plan(targets, verbose, task="drift")
    if textfile is None:
        return outcome
    # A host whose file somebody is editing is not gone.
    known = {name for reading in load_usable(paths.fleet_dirs()) for name in (*reading.fleet.hosts, *reading.broken)}
    return _besides(outcome, lambda: metrics.write(textfile, outcome, known=known))


def _besides(outcome: Outcome, write: Callable[[], None]) -> Outcome:
    """A file that was asked for and cannot be written is told, and does not cost what was found out about the hosts."""
    try:
        write()
    except KitError as error:
        return replace(outcome, failures=(*outcome.failures, *error.failures), exit_code=error.exit_code)
    return outcome


def verify(targets: Sequence[Target], junit: Path | None = None, verbose: bool = False) -> Outcome:
    """Probe and plan again, then the outside suite. Changes nothing."""
    with recorded("verify", targets) as (run, work):
        seen: dict[str, tuple[OutsideCase, ...]] = {}

        def do(one: Work) -> None:
            _judge(one, _look(one, run))
            with run.host(one.name).stage("outside"):
                outside = hostcheck.run(one.target, run.host(one.name).path)
            one.result["outside"] = outside.summary()
            seen[one.name] = outside.cases
            one.skipped += outside.skipped
            if not outside.ok:
                one.failures += outside.failures
                one.codes.add(ExitCode.GATE_FAILED)

        # The outside suite is a pytest process each: two at a time keeps the control machine small.
        each(work, min(2, forks(targets)), do)
        body = "\n".join(text.plan_text(one.plan, verbose) for one in work if one.plan)
        table = text.outside_table({w.name: w.result.get("outside", {}) for w in work})
        outcome = finish("verify", run, work, f"{body}\n{table}")
        if junit is None:
            return outcome
        xml = cases.document(cases.suites(one.name, one.plan, seen.get(one.name, ()), one.failures) for one in work)
        return _besides(outcome, lambda: hostcheck.write_junit(xml, junit))


def provision(targets: Sequence[Target], check: bool = False, reboot: bool = False, verbose: bool = False) -> Outcome:
    """Plan, apply what would change, verify. ``check`` is the dry run. Reboots happen only with ``reboot``."""
    if check:
        return plan(targets, verbose)
    with recorded("provision", targets) as (run, work), ExitStack() as locks:
        jobs: dict[Target, Plan] = {}

        def hold(one: Work) -> Callable[[], None]:
            return locks.enter_context(locked(one, run))

        def look(one: Work) -> None:
            still_held = hold(one)
            plan = _look(one, run)
            one.result["planned"] = text.plan_summary(plan)
            if plan.refused or not _work_to_do(plan, reboot):
                _judge(one, plan)
            else:
                still_held()
                jobs[one.target] = plan

        each(work, forks(targets), look)
        if jobs:
            again = _apply(work, jobs, run, reboot)
            # The reboot ended the session that held the lock: another operator may have come since.
            rebooted = [one for one in work if one.target in again]
            each(rebooted, forks(targets), hold)
            again = {one.target: again[one.target] for one in rebooted if one.exit_code == ExitCode.OK}
            if again:
                _apply(work, again, run, reboot=False)
        body: list[str] = []
        for one in work:
            before = jobs.get(one.target)
            if one.plan and (before is None or verbose):
                body.append(text.plan_text(before or one.plan, verbose, brief=True))
            if before is not None:
                body.append(text.applied_text(before, one.plan, one.result.get("outcome", "")))
        return finish("provision", run, work, "\n".join(body))


def _work_to_do(plan: Plan, reboot: bool) -> bool:
    return bool(plan.of(Action.CHANGE)) or (reboot and bool(plan.of(Action.REBOOT)))


def _apply(work: Sequence[Work], jobs: Mapping[Target, Plan], run: Run, reboot: bool) -> dict[Target, Plan]:
    """Ansible on the hosts that need it, in one run; then look at each again: it must have come out as planned.

    Returns the plans of hosts that were rebooted and have more to change now: what only an answering GPU lets be judged.
    """
    for target, plan in jobs.items():
        run.host(target.spec.name).put("apply", role_variables(plan, reboot=reboot))

    lost: list[KitError] = []
    again: dict[Target, Plan] = {}

    def tell(event: ApplyEvent) -> None:
        # Hundreds of tasks that found nothing to do hide the one that changed something; the record has them all.
        log.log(logging.DEBUG if event.status in ("ok", "skipped") else logging.INFO, "%s: %s", event.host, event.line())
        try:
            run.host(event.host).event(event)
        except KitError as error:
            # A full disk must not stop Ansible half-way on every host; it is told once the hosts are whole.
            lost.append(error)

    with run.stage("apply"):
        results = ansible.apply(jobs, run.path, tell, forks(list(jobs)), reboot=reboot)

    def confirm(one: Work) -> None:
        result = results[one.name]
        if lost:
            one.fail(lost[0])
        try:
            run.host(one.name).put("recap", result)
        except KitError as error:
            # What went wrong on the host is told all the same.
            one.fail(error)
        one.result["apply"] = {"changed": result.changed, "seconds": result.seconds}
        if result.failures:
            raise KitError(list(result.failures), result.exit_code)
        before, after = jobs[one.target], _look(one, run, "verify-")
        rebooted = reboot and bool(before.of(Action.REBOOT))
        if rebooted and after.boot_id != before.boot_id and after.of(Action.CHANGE) and not _stuck(after):
            again[one.target] = after
            return
        _judge(one, after)
        _converged(one, before, after, rebooted, run.host(one.name).path / EVENTS)
        steps = len(before.steps) - len(before.of(Action.KEEP))
        one.result["apply"]["steps"] = steps
        settled = not after.refused and not after.pending
        now = f"all {len(after.steps)} are as declared now" if settled else f"seen again: {text.plan_summary(after)}"
        one.result["outcome"] = f"{steps} changed in {result.seconds:.1f} s; {now}"

    each([one for one in work if one.target in jobs], forks(list(jobs)), confirm)
    return again


def _stuck(after: Plan) -> bool:
    """A host fresh from its reboot that cannot go on by itself."""
    return after.refused or bool(after.of(Action.REBOOT))


def _converged(one: Work, before: Plan, after: Plan, rebooted: bool, events: Path) -> None:
    """Raises KitError(APPLY_FAILED) for what was applied and is still to change, or a reboot that did not happen or help."""
    step = f"{events} says what Ansible did"
    problems = [
        failure("apply.not_converged", f"{one.name}: {s.id}", s.expected, s.found or s.reason, s.next or step)
        for s in after.of(Action.CHANGE)
    ]
    if rebooted and after.boot_id == before.boot_id:
        step = "look at the host's console: it did not reboot"
        problems.append(failure("apply.not_rebooted", one.name, "a new boot id", after.boot_id, step))
    elif rebooted:
        step = "a reboot was made and did not mend it: look at the kernel log (`journalctl -k -b`) and the driver's packages"
        problems += [
            failure("apply.reboot_in_vain", f"{one.name}: {s.id}", s.expected, s.found or s.reason, step)
            for s in after.of(Action.REBOOT)
            if s.id != "reboot.host"
        ]
    if problems and not after.refused:
        raise KitError(problems, ExitCode.APPLY_FAILED)
