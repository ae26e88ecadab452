"""Evidence of the gates that chat. They may run beside each other; none looks at bytes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kit.gates.declare import ArithmeticSize, NeedleSize, SpeculationSize
from kit.gates.gather.client import Engine
from kit.gates.judges import arithmetic, needle, speculation, thinking, tools
from kit.gates.judges.replies import Reply

POLL_S = 0.05
ACCEPT = "sglang:spec_accept_length"
SENTENCE = "The quick brown fox jumps over the lazy dog near the old stone bridge. "


def both_ways(engine: Engine, cases: Mapping[str, Mapping[str, Any]]) -> tuple[Reply, ...]:
    """Each case whole and streamed."""
    return tuple(engine.chat(name, body, streamed) for name, body in cases.items() for streamed in (False, True))


def tool_evidence(engine: Engine, model: str, tokens: int, cases: Sequence[str]) -> tools.Evidence:
    """The cases that this profile can do."""
    return tools.Evidence(replies=both_ways(engine, {name: tools.body(tools.CASES[name], model, tokens) for name in cases}))


def thinking_evidence(engine: Engine, model: str, tokens: int, cases: Sequence[str]) -> thinking.Evidence:
    """On and off."""
    return thinking.Evidence(replies=both_ways(engine, {name: thinking.body(name, model, tokens) for name in cases}))


def at_once(engine: Engine, streams: int, jobs: Sequence[Callable[[], Reply]]) -> tuple[tuple[Reply, ...], int | None]:
    """Run jobs ``streams`` at a time, and the most requests that the engine had at once meanwhile."""
    seen: list[int] = []
    done = threading.Event()

    def watch() -> None:
        while not done.wait(POLL_S):
            running = engine.running()
            if running is not None:
                seen.append(running)

    watcher = threading.Thread(target=watch, name="load", daemon=True)
    watcher.start()
    try:
        with ThreadPoolExecutor(streams, thread_name_prefix="stream") as pool:
            replies = tuple(pool.map(lambda job: job(), jobs))
    finally:
        done.set()
        watcher.join()
    return replies, max(seen, default=None)


def arithmetic_evidence(engine: Engine, model: str, size: ArithmeticSize) -> arithmetic.Evidence:
    """Sums, ``size.streams`` at once, streamed."""
    asked = arithmetic.questions(size.questions)

    def job(number: int, question: arithmetic.Question) -> Callable[[], Reply]:
        body = {
            "model": model,
            "messages": [{"role": "user", "content": question.text}],
            "temperature": 0,
            "max_tokens": size.tokens,
        }
        return lambda: engine.chat(f"question {number}", body, True)

    replies, together = at_once(engine, size.streams, [job(i, q) for i, q in enumerate(asked, 1)])
    return arithmetic.Evidence(questions=asked, replies=replies, streams=size.streams, together=together)


def needle_evidence(engine: Engine, model: str, size: NeedleSize) -> needle.Evidence:
    """A long text of one sentence with facts at even places, as long as asked: its length is measured, then corrected once."""
    facts = tuple(
        needle.Fact(place=(i + 1) / (size.facts + 1), value=str(100003 + 7919 * (i + 1) % 899981)) for i in range(size.facts)
    )
    count = max(1, size.prompt_tokens // 17)
    probe = engine.chat(
        "length", {"model": model, "messages": _haystack(min(count, 100), ()), "temperature": 0, "max_tokens": 1}, False
    )
    empty = engine.chat("length", {"model": model, "messages": _haystack(0, facts), "temperature": 0, "max_tokens": 1}, False)
    if probe.prompt_tokens and empty.prompt_tokens:
        plain = engine.chat("length", {"model": model, "messages": _haystack(0, ()), "temperature": 0, "max_tokens": 1}, False)
        each = (probe.prompt_tokens - (plain.prompt_tokens or 0)) / min(count, 100)
        count = max(1, int((size.prompt_tokens - empty.prompt_tokens) / each)) if each > 0 else count
    body = {"model": model, "messages": _haystack(count, facts), "temperature": 0, "max_tokens": size.tokens}
    return needle.Evidence(facts=facts, reply=engine.chat("needle", body, False))


def _haystack(sentences: int, facts: Sequence[needle.Fact]) -> list[dict[str, str]]:
    lines = [SENTENCE] * sentences
    for number, fact in reversed(list(enumerate(facts, 1))):
        lines.insert(int(fact.place * sentences), f"Remember: secret number {number} is {fact.value}. ")
    numbers = ", ".join(str(number) for number in range(1, len(facts) + 1))
    question = f"\nWhat are the secret numbers {numbers}? Answer with the numbers only."
    return [{"role": "user", "content": "".join(lines) + question}]


def speculation_evidence(engine: Engine, model: str, size: SpeculationSize, speculative: bool) -> speculation.Evidence:
    """One prompt of about ``size.prompt_tokens``, asked over and over; temperature 1 as live traffic has it."""
    text = SENTENCE * max(1, size.prompt_tokens // 17) + "\nTell a story that goes on from here."
    body = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "temperature": 1.0,
        "max_tokens": size.tokens,
    }
    jobs = [lambda number=number: engine.chat(f"request {number}", body, True) for number in range(1, size.requests + 1)]
    accepted: list[float] = []
    replies, _ = at_once(engine, size.concurrency, jobs)
    if speculative and (value := engine.counters().get(ACCEPT)):
        accepted.append(value)
    found = next((one.prompt_tokens for one in replies if one.prompt_tokens), 0)
    return speculation.Evidence(
        replies=replies, prompt_tokens=found, speculative=speculative, accept_length=accepted[-1] if accepted else None
    )


def wait_ready(engine: Engine, timeout_s: float, tell: Callable[[str], None]) -> bool:
    """Until /health says 200. Readiness proper is progress: a token through every rank, which /health asks for."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if engine.health() == 200:
            return True
        tell("not healthy yet")
        time.sleep(1.0)
    return False
