"""Nodes that stopped come back through their gates, and no other way. Edge; what a node needs is decided by :func:`need`."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import StrEnum

from kit.errors import ExitCode, Failure, KitError, failure
from kit.gates.commands import gate
from kit.gates.gather.client import Engine
from kit.gates.identity import Identity, Pass, invalid
from kit.gates.names import GateName
from kit.record.store import Run
from kit.router import flow
from kit.router.flow import Pool, Timeline
from kit.router.model import Membership, State
from kit.router.node import Node

log = logging.getLogger("kit.reconcile")


class Need(StrEnum):
    """What a node needs to serve as it should."""

    NOTHING = "nothing"
    """It is joined with a pass that holds; routers are compared for all such nodes together."""
    GATE = "gate"
    """It is joined by its marker, and what runs now was never gated: a restart, a reboot, another image."""
    LEAVE_ALONE = "leave alone"
    """It left, was quarantined or never joined: an operator's word, which only an operator takes back."""


def need(marker: Membership | None, now: Identity, required: Sequence[GateName]) -> Need:
    """Pure."""
    if marker is None or marker.state is not State.JOINED:
        return Need.LEAVE_ALONE
    return Need.GATE if invalid(marker.given, now, required) else Need.NOTHING


def bring_back(node: Node, pool: Pool, run: Run, timeline: Timeline, ready_s: float) -> Pass:
    """Out of the routers first, then warm, gated, joined. Raises KitError; then it stays out, quarantined with an id and why."""
    for client in pool.clients.values():
        with suppress(KitError):
            client.remove(node.url)
    node.close_port()
    timeline.add(f"{node.name}: what runs there was not gated; out of the routers, port closed")
    try:
        _warm(node, ready_s)
        timeline.add(f"{node.name}: the engine makes progress")
        _, given, outcome = gate(node.subject(), run)
        if given is None:
            raise KitError(list(outcome.failures), outcome.exit_code or ExitCode.GATE_FAILED)
        timeline.add(f"{node.name}: gated")
        flow.join(node, pool, given, run.id, timeline)
        return given
    except KitError as error:
        why = error.failures[0].text() if error.failures else "its gates did not pass"
        quarantine(node, run.id, why, timeline)
        raise


def _warm(node: Node, ready_s: float) -> None:
    deadline = time.monotonic() + ready_s
    while time.monotonic() < deadline:
        with suppress(KitError), Engine(node.subject().url, node.key, timeout_s=60) as engine:
            if engine.health() == 200:
                return
        time.sleep(1.0)
    step = "see its engine's log"
    raise KitError(
        failure("reconcile.not_ready", node.name, f"an engine that answers within {ready_s:g} s", "none", step), ExitCode.TIMEOUT
    )


def quarantine(node: Node, run: str, why: str, timeline: Timeline) -> str:
    """Out until an operator says otherwise; the id tells this quarantine from every other."""
    mark = secrets.token_hex(4)
    node.close_port()
    node.mark(flow.membership(State.QUARANTINED, run, quarantine_id=mark, reason=why[:300]))
    timeline.add(f"{node.name}: quarantined as {mark}: {why}")
    return mark


def reconcile(nodes: Sequence[Node], pool: Pool, run: Run, timeline: Timeline) -> tuple[dict[str, str], tuple[Failure, ...]]:
    """Each node that needs it through its gates; then every router made to hold exactly the joined ones.

    Returns node -> what was done, and what is still wrong. One node's failure does not keep the next from coming back.
    """
    done: dict[str, str] = {}
    left: list[Failure] = []
    for node in nodes:
        try:
            what = need(node.membership(), _identity(node), node.profile.gates.required)
            if what is Need.GATE:
                bring_back(node, pool, run, timeline, node.profile.readiness.total_s)
                done[node.name] = "came back through its gates"
            else:
                done[node.name] = str(what)
        except KitError as error:
            left += error.failures
            done[node.name] = f"stays out: {error.failures[0].text() if error.failures else error}"
    left += flow.restore(nodes, pool, timeline)
    return done, tuple(dict.fromkeys(left))


def _identity(node: Node) -> Identity:
    """Of an engine that is down nothing is known, and no pass holds for that."""
    try:
        return node.identity()
    except KitError as error:
        if error.exit_code == ExitCode.UNREACHABLE and any(f.code.startswith("ssh.") for f in error.failures):
            raise
        profile = node.profile
        unknown = dict.fromkeys(("image_id", "plan_digest", "argv_sha256", "weights_sha256", "boot_id", "invocation_id"))
        return Identity(host=node.name, profile=profile.name, model=profile.model.served_name, **unknown)
