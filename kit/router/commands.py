"""``invoke start``, ``stop``, ``smoke --host``, ``join``, ``leave`` and ``status``. Edge."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from kit import paths
from kit.engine.lint import fits_host
from kit.engine.load import folders, load_profile
from kit.engine.unit import Image
from kit.errors import ExitCode, KitError, failure
from kit.facts.collect import collect
from kit.facts.unknown import is_known
from kit.gates.commands import gate, gates_named, smoke_url
from kit.gates.enginelog import read as read_log
from kit.gates.gather.client import Engine
from kit.gates.identity import Pass
from kit.gates.names import GateName
from kit.gates.table import junit
from kit.gates.verdict import GateResult
from kit.image.places import Places
from kit.image.push import folder_on, prepared
from kit.outcome import Outcome
from kit.plan.areas import cores
from kit.plan.make import make_plan
from kit.plan.wanted import wanted
from kit.record.store import Run
from kit.router import flow
from kit.router import reconcile as coming_back
from kit.router.flow import Pool, Timeline
from kit.router.host import HostNode
from kit.router.model import RouterFile, State, Worker
from kit.spec.load import load_document
from kit.spec.pick import on_hosts
from kit.spec.target import Target
from kit.work import Work, each, finish, forks, recorded, remote

log = logging.getLogger("kit.serve")
ROUTERS = "routers.yml"
POLL_S = 2.0
DEATHS = 2
"""An engine that dies twice at its start will die a third time."""


def router_file() -> RouterFile:
    """The first fleet folder's. Raises KitError(USAGE)."""
    for directory in folders():
        if (directory / ROUTERS).is_file():
            return load_document(directory, directory / ROUTERS, RouterFile)
    step = "see docs/serving.md"
    raise KitError(
        failure("router.none", ROUTERS, "a file that declares the routers", "none in any fleet folder", step), ExitCode.USAGE
    )


def _node(one: Work, run: Run) -> HostNode:
    """A host as a node; its plan must be all `keep`, which is part of what a pass holds for."""
    target = one.target
    profile = load_profile(target.spec.engine, folders())
    wrong = fits_host(profile, target.spec) if profile.device == "cuda" else []
    if wrong:
        raise KitError(
            [failure(f.code, f"{one.name}: {'.'.join(map(str, f.path))}", f.expected, f.found, f.next) for f in wrong],
            ExitCode.REFUSED,
        )
    file = router_file()
    key = Path(file.engine_key_file).expanduser() if file.engine_key_file else None
    facts, _ = collect(target, wanted(target.spec), remote(target))
    one.facts = facts
    one.plan = make_plan(target.spec, target.lock, facts)
    return HostNode(
        target, profile, remote(target), run, key, one.plan.digest() if not one.plan.pending and not one.plan.refused else None
    )


def _passes() -> Path:
    return paths.runs_dir() / "passes"


def _keep_pass(given: Pass) -> None:
    _passes().mkdir(parents=True, exist_ok=True)
    (_passes() / f"{given.identity.host}.json").write_text(given.model_dump_json(indent=1) + "\n")


def _kept_pass(host: str) -> Pass | None:
    path = _passes() / f"{host}.json"
    return Pass.model_validate_json(path.read_text()) if path.is_file() else None


def start(targets: Sequence[Target]) -> Outcome:
    """Write the unit, start the engine with its port closed, wait until it makes progress, phase by phase."""
    with recorded("start", targets) as (run, work):

        def do(one: Work) -> None:
            node = _node(one, run)
            assert one.facts is not None
            packed = prepared(Places.here(), one.target.spec.image)
            config = json.loads(packed.configuration)["config"]
            picture = Image(
                image_id=f"sha256:{packed.image_id.removeprefix('sha256:')}",
                root=f"{folder_on(one.target)}/{packed.image_id}/rootfs",
                python=config["Entrypoint"][0],
                user=packed.user,
                uid=int(str(config["User"]).partition(":")[0]),
                home=str(config.get("WorkingDir") or "/var/lib/engine"),
                environment=dict(entry.split("=", 1) for entry in config.get("Env", [])),
            )
            gpu = one.facts.gpu
            driver = str(gpu.driver_version) if is_known(gpu) and is_known(gpu.driver_version) else "unknown"
            with run.host(one.name).stage("install"):
                node.stop()
                node.install(picture, cores.look(one.target.spec, one.facts).assignment, driver)
            with run.host(one.name).stage("start"):
                node.start()
                one.result |= _until_ready(node, run)

        each(work, forks(targets), do)
        body = "\n".join(
            f"{one.name}: ready after {one.result['ready_s']:.0f} s; {one.result['phases']}"
            for one in work
            if "ready_s" in one.result
        )
        return finish("start", run, work, body)


def _until_ready(node: HostNode, run: Run) -> dict[str, Any]:
    """Ready is progress: the log says so, and a token came through every rank. Raises KitError(TIMEOUT) with the last lines."""
    began, budget, said = time.monotonic(), node.profile.readiness.total_s, ""
    died = 0
    while time.monotonic() - began < budget:
        state = node.unit_state()
        text = node.journal() or ""
        read = read_log(text)
        phase = list(read.phases)[-1] if read.phases else "starting"
        if phase != said:
            log.info("%s: %s (%.0f s)", node.name, phase, time.monotonic() - began)
            said = phase
        restarts = int(state.get("NRestarts", "0") or "0")
        if restarts > died:
            died = restarts
            log.warning("%s: the engine died and was started again: %s", node.name, node.last_words())
        if state.get("ActiveState") == "failed" or died >= DEATHS:
            break
        if read.ready:
            with suppress(KitError), Engine(node.local_url(), node.key, timeout_s=60) as engine:
                if engine.health() == 200:
                    return {"ready_s": round(time.monotonic() - began, 1), "phases": dict(read.phases)}
        time.sleep(POLL_S)
    lines = node.last_words()
    step = "see `journalctl -u b300kit-engine`"
    raise KitError(failure("engine.not_ready", node.name, f"ready within {budget} s", lines or "no log", step), ExitCode.TIMEOUT)


def stop(targets: Sequence[Target]) -> Outcome:
    """Stop engines that are out of every router. Raises nothing for one that is joined: its failure says `leave` first."""
    with recorded("stop", targets) as (run, work):

        def do(one: Work) -> None:
            node = _node(one, run)
            marker = node.membership()
            if marker is not None and marker.state == "joined":
                step = f"invoke leave --host {one.name}"
                raise KitError(failure("stop.joined", one.name, "a host that left", "joined", step), ExitCode.REFUSED)
            node.stop()

        each(work, forks(targets), do)
        return finish("stop", run, work, "\n".join(f"{one.name}: stopped" for one in work if not one.failures))


def smoke_any(host: str, url: str, profile: str, engine_log: str, only: str, junit_file: Path | None) -> Outcome:
    """Hosts of the fleet, or one engine on this machine."""
    if bool(host) == bool(url) or (url and not profile):
        found = "both" if host and url else "--url without --profile" if url else "neither"
        step = "give --host, or --url with --profile"
        raise KitError(
            failure("cli.missing_option", "invoke smoke", "--host, or --url with --profile", found, step), ExitCode.USAGE
        )
    if url:
        return smoke_url(url, profile, engine_log, only, junit_file)
    return on_hosts(host, lambda targets: smoke(targets, gates_named(only), junit_file))


def smoke(targets: Sequence[Target], only: tuple[GateName, ...], junit_file: Path | None) -> Outcome:
    """The gates of each host's profile; a pass is kept for join."""
    with recorded("smoke", targets) as (run, work):
        suites: list[tuple[str, Sequence[GateResult]]] = []

        def do(one: Work) -> None:
            node = _node(one, run)
            results, given, outcome = gate(node.subject(), run, only)
            suites.append((one.name, results))
            one.result |= outcome.result
            one.failures += outcome.failures
            one.codes.add(int(outcome.exit_code))
            if given is not None:
                _keep_pass(given)

        each(work, forks(targets), do)
        xml = junit(suites)
        run.put("gates-junit", xml, ".xml")
        if junit_file is not None:
            junit_file.write_text(xml)
        body = "\n".join(f"{one.name}\n{one.result.pop('table')}" for one in work if "table" in one.result)
        return finish("smoke", run, work, body)


def _with_pool(task: str, targets: Sequence[Target], do: Callable[[Work, HostNode, Pool, Run, Timeline], None]) -> Outcome:
    with recorded(task, targets) as (run, work), ExitStack() as stack:
        pool = flow.open_pool(router_file(), stack)
        lines: list[str] = []

        def one_host(one: Work) -> None:
            line = Timeline()
            try:
                do(one, _node(one, run), pool, run, line)
            finally:
                run.host(one.name).put("timeline", {"events": line.plain()})
                one.result["timeline"] = line.plain()
                lines.extend(f"{at:8.2f} s  {what}" for at, what in line.events)

        # One at a time: each is watched before the next is let in.
        each(work, 1, one_host)
        return finish(task, run, work, "\n".join(lines))


def join(targets: Sequence[Target], override: bool) -> Outcome:
    """Let gated hosts take traffic."""
    return _with_pool(
        "join", targets, lambda one, node, pool, run, line: flow.join(node, pool, _kept_pass(one.name), run.id, line, override)
    )


def leave(targets: Sequence[Target], reason: str, stop_engine: bool) -> Outcome:
    """Take hosts out; streams end first."""
    return _with_pool(
        "leave", targets, lambda one, node, pool, run, line: flow.leave(node, pool, run.id, reason, line, stop_engine)
    )


def reconcile(targets: Sequence[Target]) -> Outcome:
    """For a timer: nodes that stopped come back through their gates, routers are made to agree."""
    with recorded("reconcile", targets) as (run, work), ExitStack() as stack:
        pool, line = flow.open_pool(router_file(), stack), Timeline()
        nodes: dict[str, HostNode] = {}

        def look(one: Work) -> None:
            nodes[one.name] = _node(one, run)

        each(work, forks(targets), look)
        done, left = coming_back.reconcile(list(nodes.values()), pool, run, line)
        for one in work:
            one.result["reconcile"] = done.get(one.name, "not reached")
            mine = [f for f in left if one.name in f.where or (one.name in nodes and nodes[one.name].url in f.where)]
            if mine:
                one.fail(KitError(mine, ExitCode.GATE_FAILED))
        run.put("timeline", {"events": line.plain()})
        body = "\n".join(f"{name}: {said}" for name, said in done.items())
        return finish("reconcile", run, work, body)


def quarantine(targets: Sequence[Target], reason: str) -> Outcome:
    """Out of the routers, streams end first, and out until `release`."""

    def do(one: Work, node: HostNode, pool: Pool, run: Run, line: Timeline) -> None:
        flow.leave(node, pool, run.id, reason, line)
        one.result["quarantine_id"] = coming_back.quarantine(node, run.id, reason, line)

    return _with_pool("quarantine", targets, do)


def release(targets: Sequence[Target]) -> Outcome:
    """End a quarantine: the host is out, and may be gated and joined."""
    with recorded("release", targets) as (run, work):

        def do(one: Work) -> None:
            node = _node(one, run)
            marker = node.membership()
            if marker is None or marker.state != "quarantined":
                found = str(marker.state) if marker is not None else "never joined"
                raise KitError(failure("release.none", one.name, "a quarantined host", found, "nothing to do"), ExitCode.USAGE)
            node.mark(flow.membership(State.LEFT, run.id, reason=f"released from quarantine {marker.quarantine_id}"))

        each(work, forks(targets), do)
        return finish("release", run, work, "\n".join(f"{one.name}: released" for one in work if not one.failures))


def status(targets: Sequence[Target]) -> Outcome:
    """One table of all hosts: drift, image, gate, membership, each router's word, load, since when."""
    with recorded("status", targets) as (run, work), ExitStack() as stack:
        pool = flow.open_pool(router_file(), stack)
        listed = pool.listed()

        def do(one: Work) -> None:
            node = _node(one, run)
            marker, state = node.membership(), node.unit_state()
            given = marker.given if marker is not None and marker.given is not None else _kept_pass(one.name)
            one.result |= {
                "drift": len([s for s in one.plan.steps if s.action != "keep"]) if one.plan is not None else None,
                "engine": f"{state.get('ActiveState')} since {state.get('ActiveEnterTimestamp') or 'never'}",
                "gated": given.run if given is not None and given.identity.invocation_id == state.get("InvocationID") else None,
                "membership": f"{marker.state} since {marker.since}" if marker is not None else "never joined",
                "routers": {name: _said(workers, node.url) for name, workers in listed.items()},
            }

        each(work, forks(targets), do)
        return finish("status", run, work, "\n".join(_row(one) for one in work))


def _said(workers: Sequence[Worker] | None, url: str) -> str:
    """What a router says of one node."""
    if workers is None:
        return "no answer"
    mine = next((worker for worker in workers if worker.url == url), None)
    if mine is None:
        return "not listed"
    return f"{'healthy' if mine.healthy else 'UNHEALTHY'}, load {mine.load}"


def _row(one: Work) -> str:
    r = one.result
    if "engine" not in r:
        return f"{one.name}: {one.failures[0].text() if one.failures else 'nothing known'}"
    routers = "; ".join(f"{name}: {said}" for name, said in r["routers"].items())
    gated = f"gated in {r['gated']}" if r["gated"] else "not gated"
    return f"{one.name}: drift {r['drift']}; engine {r['engine']}; {gated}; {r['membership']}; {routers}"
