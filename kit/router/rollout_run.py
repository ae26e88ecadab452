"""Carries a rollout out, one journal line a step, on disk before the next begins. Edge."""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from kit.errors import ExitCode, KitError, failure
from kit.gates.commands import gate
from kit.gates.gather.client import Engine
from kit.gates.identity import Pass
from kit.gates.verdict import Verdict
from kit.record import files
from kit.record.store import Run
from kit.router import flow
from kit.router.decide import waves
from kit.router.flow import Pool, Timeline
from kit.router.model import State
from kit.router.node import Node
from kit.router.rollout import Action, End, Event, Rollout, Step, coming

log = logging.getLogger("kit.rollout")
EXIT: Mapping[End, int] = {
    End.DONE: ExitCode.OK,
    End.ROLLED_BACK: ExitCode.ROLLED_BACK,
    End.QUARANTINED: ExitCode.ROLLED_BACK,
}
POLL_S = 1.0


class Deployable(Node, Protocol):
    """A node that can be given another release."""

    def release(self) -> str:
        """What is deployed there, running or not."""

    def deploy(self, release: str) -> None:
        """Put a release there; the engine is down. Doing it twice is doing it once."""


def plan(nodes: Sequence[Deployable], release: str, minimum: int) -> Rollout:
    """Raises KitError(REFUSED) when the minimum leaves no room, KitError(USAGE) when there is nothing to do."""
    wanted = [node for node in nodes if node.release() != release]
    if not wanted:
        step = "nothing to do"
        raise KitError(failure("rollout.nothing", release, "a node with another release", "none", step), ExitCode.USAGE)
    states = {node.name: node.membership() for node in nodes}
    serving = sum(marker is not None and marker.state is State.JOINED for marker in states.values())
    cut = waves([node.name for node in wanted], serving, minimum)
    if not isinstance(cut, tuple):
        raise KitError(cut, ExitCode.REFUSED)
    return Rollout(id=secrets.token_hex(4), release=release, before={node.name: node.release() for node in wanted}, waves=cut)


def begin(journal: Path, rollout: Rollout) -> None:
    """First line. Raises KitError(USAGE) when a journal is there: it is resumed, not replaced."""
    if journal.exists():
        raise KitError(failure("rollout.exists", str(journal), "no journal", "one", "resume it"), ExitCode.USAGE)
    files.make_directory(journal.parent)
    files.append_line(journal, rollout.model_dump_json().encode(), durable=True)


def read(journal: Path) -> tuple[Rollout, list[Event]]:
    """A last line that a kill cut short is no line. Raises KitError(USAGE) when there is no journal."""
    if not journal.exists():
        raise KitError(failure("rollout.none", str(journal), "a journal", "none", "start a rollout"), ExitCode.USAGE)
    text = journal.read_text()
    lines = text.split("\n")[:-1] if not text.endswith("\n") else text.splitlines()
    events = []
    for line in lines[1:]:
        with suppress(json.JSONDecodeError):
            events.append(Event.model_validate(json.loads(line)))
    return Rollout.model_validate_json(lines[0]), events


def carry_out(
    journal: Path, nodes: Mapping[str, Deployable], pool: Pool, run: Run, timeline: Timeline
) -> tuple[End, list[Event]]:
    """Until it ends. A kill at any moment leaves a journal from which this goes on."""
    rollout, events = read(journal)
    while True:
        actions = coming(rollout, events)
        if isinstance(actions, End):
            timeline.add(f"rollout {rollout.id}: {actions}")
            return actions, events
        with ThreadPoolExecutor(len(actions), thread_name_prefix="node") as threads:
            for event in threads.map(lambda action: _do(action, nodes[action.node], pool, run, timeline), actions):
                files.append_line(journal, event.model_dump_json().encode(), durable=True)
                events.append(event)


def _do(action: Action, node: Deployable, pool: Pool, run: Run, timeline: Timeline) -> Event:
    began = time.monotonic()
    timeline.add(f"{action.node}: {action.direction} {action.step}")
    given: Pass | None = None
    ok, reason, operator = True, "", False
    try:
        marker = node.membership()
        if marker is not None and marker.state is State.QUARANTINED and action.step is not Step.QUARANTINE:
            ok, operator, reason = False, True, f"quarantined by {marker.by}: {marker.reason}"
        else:
            given = _step(action, node, pool, run, timeline)
    except KitError as error:
        ok, reason = False, error.failures[0].text()
        timeline.add(f"{action.node}: {action.direction} {action.step} failed: {reason}")
    return Event(
        at=datetime.now(UTC).isoformat(timespec="milliseconds"), node=action.node, direction=action.direction, step=action.step,
        ok=ok, reason=reason, seconds=round(time.monotonic() - began, 2), given=given, operator=operator,
    )  # fmt: skip


def _step(action: Action, node: Deployable, pool: Pool, run: Run, timeline: Timeline) -> Pass | None:
    if action.step is Step.LEAVE:
        flow.leave(node, pool, run.id, f"rollout of {action.release}", timeline)
    elif action.step is Step.STOP:
        node.stop()
    elif action.step is Step.DEPLOY:
        node.deploy(action.release)
    elif action.step is Step.START:
        # Stopped first: a run that was killed may have started it already.
        node.stop()
        node.start()
        _ready(node)
    elif action.step is Step.GATE:
        return _gate(node, run)
    elif action.step is Step.JOIN:
        marker = node.membership()
        flow.join(node, pool, action.given or (marker.given if marker is not None else None), run.id, timeline)
    else:
        flow.retreat(node, pool, run.id, "could not be brought back", timeline)
        node.mark(
            flow.membership(
                State.QUARANTINED, run.id, quarantine_id=secrets.token_hex(4), reason="rollout: could not be brought back"
            )
        )
    return None


def _ready(node: Deployable) -> None:
    """Healthy within the profile's budget. Raises KitError(TIMEOUT)."""
    budget = node.profile.readiness.total_s
    deadline = time.monotonic() + budget
    while time.monotonic() < deadline:
        with suppress(KitError), Engine(node.subject().url, node.key, timeout_s=30) as engine:
            if engine.health() == 200:
                return
        time.sleep(POLL_S)
    step = "see the engine's log"
    raise KitError(failure("rollout.not_ready", node.name, f"a healthy engine within {budget} s", "none", step), ExitCode.TIMEOUT)


def _gate(node: Deployable, run: Run) -> Pass:
    results, given, outcome = gate(node.subject(), run)
    if given is None:
        failures = list(outcome.failures) or [failure("gate.failed", node.name, "a pass", "none", "see the record")]
        bad = [one.name for one in results if one.judgement.verdict in (Verdict.FAILED, Verdict.INCONCLUSIVE)]
        log.info("%s: not passed: %s", node.name, ", ".join(bad))
        raise KitError(failures, outcome.exit_code or ExitCode.GATE_FAILED)
    return given
