"""Joining and leaving real routers with real engines."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest

from kit import paths
from kit.errors import ExitCode, KitError
from kit.gates.commands import gate
from kit.gates.gather.client import Engine
from kit.gates.identity import Pass
from kit.gates.judges.replies import Reply
from kit.record.store import Run
from kit.router import flow
from kit.router.client import RouterClient
from kit.router.decide import disagreements
from kit.router.flow import Pool, Timeline
from kit.router.model import State
from tests.serve.loopback import LoopbackNode, free_port, router

log = logging.getLogger("serve")
pytestmark = [pytest.mark.serve, pytest.mark.timeout(1800)]
Nodes = tuple[LoopbackNode, LoopbackNode]


def ask(pool: Pool, number: int, tokens: int = 16) -> Reply:
    name = sorted(pool.clients)[number % len(pool.clients)]
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": f"Hello {number}"}],
        "max_tokens": tokens,
        "ignore_eos": True,
    }
    with Engine(pool.clients[name].url, pool.keys[name], timeout_s=300) as engine:
        return engine.chat(f"request {number}", body, True)


def test_no_pass_no_traffic(nodes: Nodes, pool: Pool) -> None:
    with pytest.raises(KitError) as raised:
        flow.join(nodes[0], pool, None, "run", Timeline())
    assert raised.value.exit_code == ExitCode.GATE_FAILED
    assert [f.code for f in raised.value.failures] == ["pass.none"]
    assert all(not workers for workers in pool.listed().values())
    assert not nodes[0].port_open


def test_join_serve_leave(nodes: Nodes, passes: dict[str, Pass], pool: Pool) -> None:
    line = Timeline()
    for node in nodes:
        flow.join(node, pool, passes[node.name], "run", line)
    wanted = {node.url: "tiny" for node in nodes}
    assert disagreements(pool.listed(), wanted) == ()
    assert all(node.port_open for node in nodes)
    replies = [ask(pool, number) for number in range(6)]
    assert {(r.status, r.finish) for r in replies} == {(200, "length")}

    # Streams run while both leave, one after the other: none breaks.
    made: list[Reply] = []
    threads = [threading.Thread(target=lambda n=n: made.append(ask(pool, n, 60))) for n in range(6)]
    for thread in threads:
        thread.start()
    time.sleep(1)
    flow.leave(nodes[0], pool, "run", "test", line)
    assert all(nodes[0].url not in {w.url for w in ws or ()} for ws in pool.listed().values())
    assert not nodes[0].port_open
    flow.leave(nodes[1], pool, "run", "test", line)
    for thread in threads:
        thread.join()
    assert [(r.status, r.finish, r.tokens) for r in made] == [(200, "length", 60)] * 6
    markers = [node.membership() for node in nodes]
    assert [m.state for m in markers if m is not None] == [State.LEFT, State.LEFT]
    log.info("%s", "\n".join(f"{at:8.2f} s  {what}" for at, what in line.events))


def test_routers_are_made_to_agree_again(nodes: Nodes, passes: dict[str, Pass], pool: Pool, folder: Path) -> None:
    line = Timeline()
    flow.join(nodes[0], pool, passes[nodes[0].name], "run", line)
    first, second = pool.clients.values()
    # As after a restart of one router, and somebody's hand in the other.
    first.remove(nodes[0].url)
    second.add(nodes[1].url, nodes[1].key, 60)
    assert {f.code for f in disagreements(pool.listed(), {nodes[0].url: "tiny"})} == {"router.missing", "router.ungated"}
    assert flow.restore(nodes, pool, line) == ()
    assert disagreements(pool.listed(), {nodes[0].url: "tiny"}) == ()
    flow.leave(nodes[0], pool, "run", "test", line)


def test_the_routers_key_is_needed_and_in_no_argument(folder: Path) -> None:
    port, key = free_port(), "0123456789abcdef0123"
    with router(folder / "keyed", port, key) as process:
        assert key.encode() not in Path(f"/proc/{process.pid}/cmdline").read_bytes()
        with RouterClient("keyed", f"http://127.0.0.1:{port}", key) as good:
            assert good.workers() == ()
        with RouterClient("keyed", f"http://127.0.0.1:{port}", "wrong") as bad, pytest.raises(KitError) as raised:
            bad.workers()
        assert raised.value.failures[0].code == "router.refused"
        log = next((folder / "keyed").glob("*.log")).read_text(errors="replace")
        assert key not in log


def test_a_restarted_engine_does_not_come_back_by_itself(nodes: Nodes, passes: dict[str, Pass], pool: Pool) -> None:
    node, line = nodes[1], Timeline()
    flow.join(node, pool, passes[node.name], "run", line)
    node.kill()
    node.start()
    node.wait()
    assert not node.port_open
    left = flow.restore([node], pool, line)
    assert "pass.invocation_id" in {f.code for f in left}
    assert all(not workers for workers in pool.listed().values())
    with pytest.raises(KitError) as raised:
        flow.join(node, pool, passes[node.name], "run", line)
    assert [f.code for f in raised.value.failures] == ["pass.invocation_id"]
    # Gated again, it joins again.
    with Run.create("smoke", ["test"], paths.runs_dir()) as run:
        _, given, outcome = gate(node.subject(), run)
    assert given is not None, outcome.result["table"]
    passes[node.name] = given
    flow.join(node, pool, given, "run", line)
    flow.leave(node, pool, "run", "test", line)


def test_keys_are_in_no_process_list_and_no_log(nodes: Nodes) -> None:
    for node in nodes:
        assert node.key
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != 1:
                try:
                    text = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                assert node.key.encode() not in text, entry
        assert node.key not in node.log.read_text(errors="replace")
