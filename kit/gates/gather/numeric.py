"""Evidence of the gates that look at token ids and log probabilities. Each needs the engine to itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kit.gates.declare import Batch, CacheSize, KlSize, SpeedSize
from kit.gates.gather.client import Engine
from kit.gates.judges import cache, greedy, kl, speed
from kit.gates.judges.idle import Idle
from kit.gates.prompts import Prompts, filler, take

GENERATED = "sglang:generation_tokens_total"
HOST_HITS = "sglang:prefill_effective_tokens_total{mode=host_hit}"
HEALTH_TOKENS = 16
"""A health check generates one token; more of them than this within one gate would be somebody's load."""
WAIT_S = 20.0


@dataclass
class Watch:
    """Tokens that the gate got itself, and the counters around it."""

    running_before: int | None = None
    before: float | None = None
    after: float | None = None
    own: int = 0

    def idle(self) -> Idle:
        """As the judges take it."""
        known = self.before is not None and self.after is not None
        generated = int((self.after or 0.0) - (self.before or 0.0)) if known else None
        return Idle(running_before=self.running_before, generated=generated, own=self.own, slack=HEALTH_TOKENS)


@contextmanager
def watched(engine: Engine) -> Iterator[Watch]:
    """Counters before and after. The engine counts a request's tokens when it ends, a moment after the client has them."""
    watch = Watch(engine.running(), engine.counters().get(GENERATED, 0.0))
    yield watch
    deadline = time.monotonic() + 2.0
    while True:
        watch.after = engine.counters().get(GENERATED)
        settled = watch.after is not None and watch.before is not None and watch.after - watch.before >= watch.own
        if settled or time.monotonic() >= deadline:
            return
        time.sleep(0.1)


def settle(engine: Engine, wait_s: float = WAIT_S) -> bool:
    """Flush the caches; waits for requests to end first. False when it never came to rest."""
    deadline = time.monotonic() + wait_s
    while not engine.flush():
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.5)
    return True


def decode(engine: Engine, prompts: Prompts, size: Batch) -> tuple[tuple[greedy.Decoded, ...], Idle]:
    """Every prompt by itself: what a batch is made of changes its bytes."""
    settle(engine)
    out: list[greedy.Decoded] = []
    with watched(engine) as watch:
        for number, prompt in enumerate(take(prompts.short, size.prompts)):
            one = engine.generate([prompt], size.tokens)[0]
            watch.own += len(one.tokens)
            out.append(greedy.Decoded(prompt=number, tokens=one.tokens, text=one.text))
    return tuple(out), watch.idle()


def forced(
    engine: Engine, prompts: Prompts, size: Batch, reference: tuple[greedy.Decoded, ...]
) -> tuple[tuple[greedy.ForcedPrompt, ...], Idle]:
    """Feed the reference's output; where is the top token its own? The logits at one position say the next."""
    settle(engine)
    out: list[greedy.ForcedPrompt] = []
    known = {one.prompt: one for one in reference}
    with watched(engine) as watch:
        for number, prompt in enumerate(take(prompts.short, size.prompts)):
            theirs = known.get(number)
            if theirs is None:
                continue
            meta = engine.score([(*prompt, *theirs.tokens)], top=1)[0]
            tops = meta["input_top_logprobs"][-len(theirs.tokens) :]
            agreed = sum(bool(top) and top[0][1] == token for top, token in zip(tops, theirs.tokens, strict=True))
            out.append(greedy.ForcedPrompt(prompt=number, positions=len(theirs.tokens), agreed=agreed))
    return tuple(out), watch.idle()


def kl_evidence(engine: Engine, prompts: Prompts, size: KlSize, tell: Callable[[str], None]) -> kl.Evidence:
    """Flush, decode a batch with log probabilities, flush, score prompt and output by a prefill."""
    repeats: list[kl.Repeat] = []
    with watched(engine) as watch:
        for number in range(size.repeats):
            for kind, batch, pool in (("short", size.short, prompts.short), ("long", size.long, prompts.long)):
                tell(f"{kind} set, repeat {number + 1} of {size.repeats}")
                asked = take(pool, batch.prompts)
                settle(engine)
                made = engine.generate(asked, batch.tokens, logprobs=True)
                watch.own += sum(len(one.tokens) for one in made)
                settle(engine)
                scored = engine.score([(*prompt, *one.tokens) for prompt, one in zip(asked, made, strict=True)])
                pairs = [
                    kl.Scored(
                        prompt=place,
                        decode=one.logprobs,
                        prefill=tuple(float(entry[0]) for entry in meta["input_token_logprobs"][-len(one.tokens) :]),
                    )
                    for place, (one, meta) in enumerate(zip(made, scored, strict=True))
                ]
                repeats.append(kl.Repeat(kind="short" if kind == "short" else "long", prompts=tuple(pairs)))
    return kl.Evidence(repeats=tuple(repeats), idle=watch.idle())


def cache_evidence(engine: Engine, prompts: Prompts, size: CacheSize, host_cache: bool, capacity: int | None) -> cache.Evidence:
    """The conversation afresh, turn by turn with an empty cache; then again with what is kept, the device filled between."""
    history: list[tuple[int, ...]] = []
    fresh = []
    said: tuple[int, ...] = ()
    for turn in range(size.turns):
        said = (*said, *filler(prompts.short, size.prompt_tokens, 1 + 97 * turn))
        settle(engine)
        one = engine.generate([said], size.tokens)[0]
        history.append(said)
        fresh.append(one.tokens)
        said = (*said, *one.tokens)
    settle(engine)
    before = engine.counters().get(HOST_HITS)
    engine.generate(history, size.tokens)
    if host_cache and capacity:
        _fill(engine, prompts, capacity)
    turns = []
    for turn, prompt in enumerate(history):
        one = engine.generate([prompt], size.tokens)[0]
        turns.append(
            cache.Turn(
                turn=turn + 1, prompt_tokens=len(prompt), fresh=fresh[turn], restored=one.tokens, cached_tokens=one.cached_tokens
            )
        )
    after = engine.counters().get(HOST_HITS)
    hits = int(after - before) if after is not None and before is not None else None
    return cache.Evidence(turns=tuple(turns), host_hits=hits if host_cache else None, host_cache=host_cache)


def _fill(engine: Engine, prompts: Prompts, capacity: int) -> None:
    """Push everything out of the device's cache: as many other tokens as it holds."""
    piece = min(capacity // 4, 32768)
    for number in range(capacity // piece + 1):
        engine.generate([filler(prompts.long, piece, 1009 * (number + 1))], 1)


def speed_evidence(engine: Engine, model: str, size: SpeedSize) -> speed.Evidence:
    """One stream after another, each timed by this client from its first event to its last."""
    runs: list[speed.Run] = []
    with watched(engine) as watch:
        for number in range(size.repetitions):
            body = {
                "model": model,
                "messages": [
                    {
                        "role": "user",
                        "content": f"Question {number + 1}. Explain step by step why {17 + number} is or is not prime.",
                    }
                ],
                "max_tokens": size.tokens,
                "temperature": 1.0,
                "top_p": 1.0,
                "ignore_eos": True,
            }
            reply, stream, sent = engine.timed_chat(f"stream {number + 1}", body, True)
            tokens = reply.tokens or 0
            watch.own += tokens
            if stream.times:
                # SGLang sends an event a step; what the first one holds beyond one token cannot be told from outside.
                span = stream.times[-1] - stream.times[0]
                runs.append(speed.Run(tokens=tokens, first_tokens=1, seconds=span, first_s=stream.times[0] - sent))
    return speed.Evidence(runs=tuple(runs), idle=watch.idle())
