"""arithmetic: sums with known answers, many streams at once: what a corrupted batch gets wrong first."""

from __future__ import annotations

import re

from kit.gates.declare import Frozen
from kit.gates.judges.replies import Reply, broken
from kit.gates.verdict import Fault, Judgement, fault, judged

NUMBER = re.compile(r"-?\d[\d,]*")


class Question(Frozen):
    """Made from a seed, so that every run asks the same."""

    text: str
    answer: int


class Evidence(Frozen):
    """Replies in the order of the questions."""

    questions: tuple[Question, ...]
    replies: tuple[Reply, ...]
    streams: int
    together: int | None
    """The most requests that the engine ran at once meanwhile, by its own counter."""


class Limits(Frozen):
    """Share of right answers."""

    least: float = 0.95


def questions(count: int) -> tuple[Question, ...]:
    """Sums and products of small numbers, by a fixed recurrence."""
    out: list[Question] = []
    state = 12345
    for number in range(count):
        state = (state * 1103515245 + 12345) % 2**31
        a, b = 2 + state // 7 % 47, 2 + state // 331 % 47
        sign, answer = (("+", a + b), ("-", a - b), ("*", a % 12 * (b % 12)))[number % 3]
        if sign == "*":
            a, b = a % 12, b % 12
        out.append(Question(text=f"What is {a} {sign} {b}? Answer with the number only.", answer=answer))
    return tuple(out)


def answer(text: str) -> int | None:
    """The last whole number in a reply."""
    found = NUMBER.findall(text)
    return int(found[-1].replace(",", "")) if found else None


def judge(evidence: Evidence, limits: Limits) -> Judgement:
    """All replies whole; enough right; they did run together."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    asked = len(evidence.questions)
    if len(evidence.replies) != asked or not asked:
        wrong.append(fault("arithmetic.count", "replies", asked or "some", len(evidence.replies)))
    ends = [(reply, broken(reply)) for reply in evidence.replies]
    wrong += [fault("arithmetic.request", reply.where, *problem) for reply, problem in ends if problem is not None]
    pairs = list(zip(evidence.questions, evidence.replies, strict=False))
    right = sum(answer(reply.content) == question.answer for question, reply in pairs)
    share = right / asked if asked else float("nan")
    if asked and not share >= limits.least:
        misses = [f"{q.text[8:].split('?')[0]} = {r.content.strip()[:20]!r}" for q, r in pairs if answer(r.content) != q.answer]
        found = f"{right} of {asked}; {'; '.join(misses[:3])}"
        wrong.append(fault("arithmetic.wrong", f"{evidence.streams} streams", f"at least {limits.least:.0%} right", found))
    if evidence.together is None:
        unknown.append(fault("arithmetic.unknown", "running requests", evidence.streams, "could not be read"))
    elif evidence.together < evidence.streams:
        found = f"at most {evidence.together} were seen"
        unknown.append(fault("arithmetic.together", "running requests", f"{evidence.streams} at once", found, "run it again"))
    figures = {"right": right, "asked": asked, "together": evidence.together}
    return judged(wrong, unknown, f"{right} of {asked} right, {evidence.streams} streams at once", figures)
