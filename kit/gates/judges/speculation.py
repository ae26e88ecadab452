"""speculation: the shape that corrupted drafted output in the field: many requests at once, one short prompt. Every reply is
whole and none degenerates; drafts are accepted at least as often as the floor."""

from __future__ import annotations

from itertools import pairwise

from kit.gates.declare import Frozen
from kit.gates.judges.replies import Reply, broken
from kit.gates.verdict import Fault, Judgement, fault, judged


class Evidence(Frozen):
    """All replies, and the engine's own mean accept length (tokens a step) meanwhile."""

    replies: tuple[Reply, ...]
    prompt_tokens: int
    speculative: bool
    """Whether the profile drafts."""
    accept_length: float | None


class Limits(Frozen):
    """``loop``: the longest stretch of one repeated word; None: a model that repeats itself anyway. ``undecodable``: half a
    character may stand in a reply, as a random model writes them."""

    accept_length: float = 2.0
    loop: int | None = 40
    undecodable: bool = False
    shown: int = 5


def longest_run(text: str) -> int:
    """The longest run of one word."""
    words = text.split()
    best = run = min(1, len(words))
    for previous, word in pairwise(words):
        run = run + 1 if word == previous else 1
        best = max(best, run)
    return best


def judge(evidence: Evidence, limits: Limits, requests: int, tokens: int) -> Judgement:
    """Each reply by itself."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    if len(evidence.replies) != requests:
        wrong.append(fault("speculation.count", "replies", requests, len(evidence.replies)))
    bad: list[Fault] = []
    for reply in evidence.replies:
        if (problem := broken(reply)) is not None:
            bad.append(fault("speculation.request", reply.where, *problem))
        elif reply.finish == "length" and reply.tokens != tokens:
            bad.append(fault("speculation.cut", reply.where, f"{tokens} tokens", reply.tokens, "the stream was cut"))
        elif ("\ufffd" in reply.content and not limits.undecodable) or not reply.content.strip():
            bad.append(fault("speculation.corrupt", reply.where, "text", repr(reply.content[:60])))
        elif limits.loop is not None and longest_run(reply.content) > limits.loop:
            bad.append(fault("speculation.loop", reply.where, f"no word {limits.loop} times in a row", repr(reply.content[-60:])))
    wrong += bad[: limits.shown]
    if len(bad) > limits.shown:
        wrong.append(fault("speculation.more", "replies", "none wrong", f"{len(bad)} of {requests} wrong in all"))
    if evidence.speculative and evidence.accept_length is None:
        unknown.append(fault("speculation.unknown", "accept length", limits.accept_length, "the engine does not say"))
    elif evidence.speculative and not (evidence.accept_length or 0.0) >= limits.accept_length:
        step = "drafts are thrown away: the draft model or its positions are wrong"
        found = evidence.accept_length
        wrong.append(fault("speculation.accept_length", "accept length", f"at least {limits.accept_length:g}", found, step))
    figures = {"replies": len(evidence.replies), "wrong": len(bad), "accept_length": evidence.accept_length}
    return judged(wrong, unknown, f"{requests} replies whole", figures)
