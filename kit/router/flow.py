"""Join, leave, and the watch between. Edge: talks to nodes and routers; what may happen is decided in ``decide``."""

from __future__ import annotations

import getpass
import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kit.errors import ExitCode, Failure, KitError, failure
from kit.gates.gather.client import Engine
from kit.gates.identity import Pass
from kit.router import decide
from kit.router.client import RouterClient
from kit.router.model import Membership, RouterFile, State, Worker
from kit.router.node import Node

log = logging.getLogger("kit.router")
ADD_S = 60.0
CANARIES = 24
"""Sent through a router until the node's own counter moves."""
AT_ONCE = 8
CANARY_TOKENS = 4
QUIET_POLLS = 3
POLL_S = 0.2
TOKENS = "sglang:generation_tokens_total"


@dataclass
class Pool:
    """The routers in use, open."""

    file: RouterFile
    clients: Mapping[str, RouterClient]
    keys: Mapping[str, str | None] = field(default_factory=dict)

    def listed(self) -> dict[str, tuple[Worker, ...] | None]:
        """Workers of each router; None: it does not answer."""
        out: dict[str, tuple[Worker, ...] | None] = {}
        for name, client in self.clients.items():
            try:
                out[name] = client.workers()
            except KitError:
                out[name] = None
        return out


def read_key(path: str | None) -> str | None:
    """A key from its file. Raises KitError(USAGE) when it cannot be read, or others may read it."""
    if path is None:
        return None
    file = Path(path).expanduser()
    try:
        mode = file.stat().st_mode & 0o077
        text = file.read_text().strip()
    except OSError as error:
        raise KitError(
            failure("key.unreadable", str(file), "a file with a key", error.strerror, "write it"), ExitCode.USAGE
        ) from None
    if mode:
        raise KitError(
            failure("key.mode", str(file), "readable by you alone", f"mode {mode:o} for others", f"chmod 600 {file}"),
            ExitCode.USAGE,
        )
    return text


def open_pool(file: RouterFile, stack: ExitStack) -> Pool:
    """Clients of every router, closed with ``stack``."""
    keys = {router.name: read_key(router.key_file) for router in file.routers}
    clients = {r.name: stack.enter_context(RouterClient(r.name, r.url, keys[r.name])) for r in file.routers}
    if not clients:
        step = "declare routers in fleet/routers.yml"
        raise KitError(failure("router.none", "fleet/routers.yml", "a router", "none", step), ExitCode.USAGE)
    return Pool(file, clients, keys)


@dataclass
class Timeline:
    """What happened when: seconds since the start."""

    began: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str]] = field(default_factory=list)

    def add(self, text: str) -> None:
        """Note and tell."""
        self.events.append((round(time.monotonic() - self.began, 3), text))
        log.info("%s", text)

    def plain(self) -> list[dict[str, Any]]:
        """For the record."""
        return [{"at_s": at, "what": what} for at, what in self.events]


def membership(state: State, run: str, given: Pass | None = None, **more: str) -> Membership:
    """A marker, now, by whoever runs this."""
    who = f"{getpass.getuser()}@{socket.gethostname()}"
    return Membership(state=state, since=datetime.now(UTC).isoformat(timespec="seconds"), by=who, run=run, given=given, **more)


def join(node: Node, pool: Pool, given: Pass | None, run: str, timeline: Timeline, override: bool = False) -> None:
    """Let a gated node take traffic, and watch it.

    Raises KitError(GATE_FAILED) with every reason why it may not; then nothing was done. Whatever goes wrong later takes the
    node out of every router again, closes its port, and is raised.
    """
    now, held = node.identity(), pool.listed()
    with Engine(node.subject().url, node.key, timeout_s=30) as engine:
        asked = decide.Asked(
            now=now,
            given=given,
            membership=node.membership(),
            models=_quietly(engine.models),
            healthy=_quietly(engine.health) == 200,
            other_models=tuple(w.model or "unknown" for ws in held.values() for w in ws or () if w.url != node.url),
        )
    reasons = list(decide.may_join(asked, node.profile.gates.required, override))
    reasons += [f for f in decide.disagreements(held, {}) if f.code == "router.unreachable"]
    if reasons:
        raise KitError(reasons, ExitCode.GATE_FAILED)
    try:
        # The marker first: from now on nothing disruptive is done to this host.
        node.mark(membership(State.JOINED, run, given))
        node.open_port()
        timeline.add(f"{node.name}: port open")
        for client in pool.clients.values():
            worker = client.add(node.url, node.key, ADD_S, timeline.add)
            timeline.add(f"{node.name}: listed and healthy in {client.name}")
            if worker.model != now.model:
                found = worker.model or "unknown"
                raise KitError(
                    failure("router.model", f"{client.name} {node.url}", now.model, found, "see /v1/models"), ExitCode.GATE_FAILED
                )
        for name, client in pool.clients.items():
            _canary(node, client, pool.keys.get(name))
            timeline.add(f"{node.name}: canary came through {name}")
        _watch(node, pool, pool.file.watch_s)
        timeline.add(f"{node.name}: joined, watched for {pool.file.watch_s:g} s")
    except BaseException as error:
        why = error.failures[0].text() if isinstance(error, KitError) else f"{type(error).__name__}: {error}"
        with suppress(KitError):
            retreat(node, pool, run, why, timeline)
        raise


def retreat(node: Node, pool: Pool, run: str, why: str, timeline: Timeline) -> None:
    """Out of every router that answers, port closed, marked as left."""
    for client in pool.clients.values():
        with suppress(KitError):
            client.remove(node.url)
    node.close_port()
    node.mark(membership(State.LEFT, run, reason=why[:300]))
    timeline.add(f"{node.name}: out again: {why}")


def _quietly(ask: Callable[[], Any]) -> Any:
    try:
        return ask()
    except KitError:
        return None


def _canary(node: Node, client: RouterClient, key: str | None) -> None:
    """A streamed reply through the router that this node, and no other, made: its own counter moves."""
    # Each begins differently, and several at once: a router that knows prefixes sends the same words to the same node, and
    # turns to the idlest node only when the others have more to do.
    bodies = [
        {
            "model": node.profile.model.served_name,
            "messages": [{"role": "user", "content": f"{secrets.token_hex(8)}: say hello."}],
            "max_tokens": CANARY_TOKENS,
            "ignore_eos": True,
        }
        for _ in range(CANARIES)
    ]
    where = f"{client.name} {node.url}"
    with Engine(node.subject().url, node.key, timeout_s=60) as direct, Engine(client.url, key, timeout_s=120) as through:
        before = direct.counters().get(TOKENS, 0.0)
        for at in range(0, CANARIES, AT_ONCE):
            with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="canary") as threads:
                replies = list(threads.map(lambda body: through.chat("canary", body, True), bodies[at : at + AT_ONCE]))
            bad = [reply for reply in replies if reply.status != 200 or reply.finish is None]
            if bad:
                found = f"{bad[0].status} {bad[0].error or 'no finish reason'}"
                raise KitError(
                    failure("join.canary", where, "whole replies", found, "see the router's log"), ExitCode.GATE_FAILED
                )
            if _moved(direct, before):
                return
    step = "does the router's policy leave it out?"
    raise KitError(
        failure("join.canary", where, "a reply by this node", f"{CANARIES} went elsewhere", step), ExitCode.GATE_FAILED
    )


def _moved(engine: Engine, before: float) -> bool:
    """The engine counts a request's tokens a moment after its last event."""
    for _ in range(10):
        if engine.counters().get(TOKENS, 0.0) >= before + CANARY_TOKENS:
            return True
        time.sleep(0.05)
    return False


def _watch(node: Node, pool: Pool, seconds: float) -> None:
    """Healthy in every router at every look. Raises KitError(GATE_FAILED)."""
    deadline = time.monotonic() + seconds
    wanted = {node.url: node.profile.model.served_name}
    while time.monotonic() < deadline:
        found = [f for f in decide.disagreements(pool.listed(), wanted) if f.code != "router.ungated"]
        if found:
            raise KitError(found, ExitCode.GATE_FAILED)
        time.sleep(min(1.0, max(0.0, deadline - time.monotonic())))


def leave(node: Node, pool: Pool, run: str, reason: str, timeline: Timeline, stop: bool = False) -> None:
    """Out of every router, wait until its streams have ended, close the port; with ``stop`` the engine goes down then.

    Raises KitError(TIMEOUT) when streams are still running after ``drain_s``: it stays out of the routers, its streams go on, and
    nothing is stopped. Raises KitError(UNREACHABLE) when a router does not answer: it may still be listed there.
    """
    unreachable: list[Failure] = []
    for client in pool.clients.values():
        try:
            client.remove(node.url)
            timeline.add(f"{node.name}: off the list of {client.name}")
        except KitError as error:
            unreachable += error.failures
    if unreachable:
        raise KitError(unreachable, ExitCode.UNREACHABLE)
    _drain(node, pool.file.drain_s, timeline)
    node.close_port()
    node.mark(membership(State.LEFT, run, reason=reason))
    timeline.add(f"{node.name}: port closed")
    if stop:
        node.stop()
        timeline.add(f"{node.name}: engine stopped")


def _drain(node: Node, seconds: float, timeline: Timeline) -> None:
    deadline, quiet = time.monotonic() + seconds, 0
    said = -1
    with Engine(node.subject().url, node.key, timeout_s=30) as engine:
        while quiet < QUIET_POLLS:
            try:
                running = engine.running()
            except KitError:
                # Nothing to wait for: an engine that is down has no stream left.
                timeline.add(f"{node.name}: its engine does not answer; nothing to drain")
                return
            if running is not None and running != said:
                timeline.add(f"{node.name}: {running} requests running")
                said = running
            quiet = quiet + 1 if running == 0 else 0
            if time.monotonic() >= deadline:
                step = "wait longer, or stop it by hand: its streams would break"
                found = "unknown" if running is None else f"{running} requests"
                raise KitError(
                    failure("leave.drain", node.name, f"no request within {seconds:g} s", found, step), ExitCode.TIMEOUT
                )
            time.sleep(POLL_S)


def restore(nodes: Sequence[Node], pool: Pool, timeline: Timeline) -> tuple[Failure, ...]:
    """Make every router hold exactly the nodes that are joined with a pass that still holds; what is left is returned.

    A router that was restarted forgot them; a worker that nobody joined is taken out.
    """
    wanted: dict[str, tuple[Node, str]] = {}
    left: list[Failure] = []
    for node in nodes:
        marker = node.membership()
        if marker is None or marker.state is not State.JOINED:
            continue
        reasons = decide.may_join(
            decide.Asked(
                now=node.identity(), given=marker.given, membership=marker, models=(node.profile.model.served_name,),
                healthy=True, other_models=(),
            ),
            node.profile.gates.required,
        )  # fmt: skip
        left += reasons
        if not reasons:
            wanted[node.url] = (node, node.profile.model.served_name)
    for name, workers in pool.listed().items():
        if workers is None:
            left.append(failure("router.unreachable", name, "an answer", "none", "is its unit up?"))
            continue
        client, held = pool.clients[name], {worker.url for worker in workers}
        for url in sorted(held - set(wanted)):
            client.remove(url)
            timeline.add(f"{name}: took out {url}: it is not joined with a pass that holds")
        for url in sorted(set(wanted) - held):
            client.add(url, wanted[url][0].key, ADD_S, timeline.add)
            timeline.add(f"{name}: put back {url}")
    left += decide.disagreements(pool.listed(), {url: model for url, (_, model) in wanted.items()})
    return tuple(dict.fromkeys(left))
