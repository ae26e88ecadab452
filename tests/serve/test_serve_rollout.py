"""A bad release is rolled out to a canary, caught by its gate, and rolled back, while streams go on through the other node."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest

from kit import paths
from kit.gates.gather.client import Engine
from kit.gates.identity import Pass
from kit.gates.judges.replies import Reply
from kit.record.store import Run
from kit.router import flow
from kit.router.decide import disagreements
from kit.router.flow import Pool, Timeline
from kit.router.rollout import End, Step
from kit.router.rollout_run import begin, carry_out, plan, read
from tests.serve.loopback import LoopbackNode

log = logging.getLogger("serve")
pytestmark = [pytest.mark.serve, pytest.mark.timeout(1800)]


class Cut(BaseException):
    """As a kill between two steps."""


class CutOnce(LoopbackNode):
    """Its first start under a rollout ends the control process."""

    cut = False

    def start(self) -> None:
        if self.cut:
            self.cut = False
            raise Cut
        super().start()


def test_a_bad_release_rolls_itself_back_while_streams_go_on(
    nodes: tuple[LoopbackNode, LoopbackNode], passes: dict[str, Pass], pool: Pool, folder: Path
) -> None:
    line = Timeline()
    for node in nodes:
        flow.join(node, pool, passes[node.name], "run", line)
    made: list[Reply] = []
    stop = threading.Event()

    def traffic() -> None:
        number = 0
        names = sorted(pool.clients)
        while not stop.is_set():
            number += 1
            name = names[number % len(names)]
            body = {
                "model": "tiny",
                "messages": [{"role": "user", "content": f"{number} hello"}],
                "max_tokens": 8,
                "ignore_eos": True,
            }
            with Engine(pool.clients[name].url, pool.keys[name], timeout_s=300) as engine:
                made.append(engine.chat(f"request {number}", body, True))
            time.sleep(0.2)

    rollout = plan(nodes, "bfloat16", minimum=1)
    assert [len(wave) for wave in rollout.waves] == [1, 1]
    canary = nodes[0]
    journal = folder / "rollout.jsonl"
    begin(journal, rollout)
    known = {node.name: node for node in nodes}
    canary.__class__, canary.cut = CutOnce, True  # type: ignore[attr-defined]
    thread = threading.Thread(target=traffic)
    thread.start()
    try:
        with Run.create("rollout", ["test"], paths.runs_dir()) as run, pytest.raises(Cut):
            carry_out(journal, known, pool, run, line)
        # Another process takes the journal up.
        assert [event.step for event in read(journal)[1]] == [Step.LEAVE, Step.STOP, Step.DEPLOY]
        with Run.create("rollout", ["test"], paths.runs_dir()) as run:
            end, events = carry_out(journal, known, pool, run, line)
    finally:
        stop.set()
        thread.join()
    log.info("%s", "\n".join(f"{at:8.2f} s  {what}" for at, what in line.events))
    assert end is End.ROLLED_BACK
    failed = [event for event in events if not event.ok]
    assert [(event.node, event.step) for event in failed] == [(canary.name, Step.GATE)]
    assert "greedy" in failed[0].reason
    assert {event.node for event in events} == {canary.name}
    assert canary.release() == "float32"
    assert disagreements(pool.listed(), {node.url: "tiny" for node in nodes}) == ()
    broken = [reply for reply in made if reply.status != 200 or reply.finish != "length" or reply.tokens != 8]
    log.info("%s", f"{len(made)} streams meanwhile, {len(broken)} broken")
    assert made and not broken
    for node in nodes:
        flow.leave(node, pool, "run", "test", line)
