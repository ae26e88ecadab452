"""May this node join? Do all routers agree? Which nodes may go next? Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from kit.errors import Failure, failure
from kit.gates.declare import Frozen
from kit.gates.identity import Identity, Pass, invalid
from kit.gates.names import GateName
from kit.router.model import Membership, State, Worker

CANARY_SHARE = 0.25


class Asked(Frozen):
    """All that is looked at before a node joins."""

    now: Identity
    given: Pass | None
    membership: Membership | None
    """The marker on the host; None: there is none."""
    models: tuple[str, ...] | None
    """What the engine serves, asked of it directly; None: it did not say."""
    healthy: bool
    other_models: tuple[str, ...]
    """Models of workers that the routers hold already."""


def may_join(asked: Asked, required: Sequence[GateName], override: bool = False) -> tuple[Failure, ...]:
    """Every reason why not; empty when it may. ``override`` is an operator's word: it ends a quarantine, never a missing pass."""
    host = asked.now.host
    out = list(invalid(asked.given, asked.now, required))
    if asked.membership is not None and asked.membership.state is State.QUARANTINED and not override:
        found = f"{asked.membership.quarantine_id}: {asked.membership.reason}"
        out.append(failure("join.quarantined", host, "no quarantine", found, f"invoke release --host {host}"))
    if asked.models is None:
        out.append(failure("join.models", host, asked.now.model, "the engine does not say what it serves", "see its log"))
    elif asked.models != (asked.now.model,):
        out.append(failure("join.models", host, asked.now.model, ", ".join(asked.models) or "nothing", "another model is served"))
    strange = sorted({model for model in asked.other_models if model != asked.now.model})
    if strange:
        step = "one router serves one model here: leave those first"
        out.append(failure("join.mixed", host, f"routers that hold {asked.now.model} alone", ", ".join(strange), step))
    if not asked.healthy:
        out.append(failure("join.health", host, "a healthy engine", "it is not", "see its log"))
    return tuple(out)


def disagreements(routers: Mapping[str, Sequence[Worker] | None], wanted: Mapping[str, str]) -> tuple[Failure, ...]:
    """What is wrong with the membership of each router. ``wanted``: worker URL -> model. None: the router did not answer."""
    out: list[Failure] = []
    for name, workers in routers.items():
        if workers is None:
            out.append(failure("router.unreachable", name, "an answer", "none", "is the router's unit up?"))
            continue
        held = {worker.url: worker for worker in workers}
        for url, model in wanted.items():
            found = held.get(url)
            if found is None:
                out.append(failure("router.missing", f"{name} {url}", "a member", "not listed", "invoke reconcile"))
            elif found.model != model:
                step = "an unknown or wrong model gets traffic for any: leave it, see /v1/models of the engine"
                out.append(failure("router.model", f"{name} {url}", model, found.model or "unknown", step))
            elif not found.healthy:
                out.append(failure("router.unhealthy", f"{name} {url}", "healthy", found.status or "unhealthy", "see the engine"))
        for url in sorted(set(held) - set(wanted)):
            step = "nobody gated it: invoke reconcile takes it out"
            out.append(
                failure("router.ungated", f"{name} {url}", "no member that did not join", held[url].model or "unknown", step)
            )
    return tuple(out)


def waves(hosts: Sequence[str], serving: int, minimum: int) -> tuple[tuple[str, ...], ...] | Failure:
    """One canary, then a quarter, then the rest, each no larger than what may be missing at once.

    ``serving``: nodes that serve now. A failure when even one may not go.
    """
    spare = serving - minimum
    if spare < 1:
        step = "add a node, or lower minimum_serving in routers.yml"
        return failure("rollout.minimum", "fleet", f"more than {minimum} serving nodes", serving, step)
    rest, out = list(hosts), []
    for size in (1, math.ceil(len(hosts) * CANARY_SHARE)):
        out += _cut(rest[:size], spare)
        rest = rest[size:]
    out += _cut(rest, spare)
    return tuple(wave for wave in out if wave)


def _cut(hosts: Sequence[str], size: int) -> list[tuple[str, ...]]:
    return [tuple(hosts[at : at + size]) for at in range(0, len(hosts), size)]
