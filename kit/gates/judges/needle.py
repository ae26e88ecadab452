"""needle: facts hidden in a prompt about as long as the context are found."""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.judges.replies import Reply, broken
from kit.gates.verdict import Fault, Judgement, fault, judged


class Fact(Frozen):
    """``place`` is where in the prompt, 0 to 1."""

    place: float
    value: str


class Evidence(Frozen):
    """One prompt."""

    facts: tuple[Fact, ...]
    reply: Reply


class Limits(Frozen):
    """The prompt must be about as long as the profile asks, or nothing was proven."""

    length: float = 0.98
    found: float = 1.0


def judge(evidence: Evidence, limits: Limits, prompt_tokens: int) -> Judgement:
    """Whole reply, long enough a prompt, every fact."""
    reply = evidence.reply
    if (problem := broken(reply)) is not None:
        return judged([fault("needle.request", reply.where, *problem)], (), "", {})
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    if reply.prompt_tokens is None:
        unknown.append(fault("needle.unknown", "prompt", f"{prompt_tokens} tokens", "the engine does not say"))
    elif not reply.prompt_tokens >= limits.length * prompt_tokens:
        wrong.append(fault("needle.short", "prompt", f"about {prompt_tokens} tokens", reply.prompt_tokens, "it was cut"))
    found = [fact for fact in evidence.facts if fact.value in reply.content]
    if not evidence.facts or not len(found) >= limits.found * len(evidence.facts):
        lost = ", ".join(f"{fact.value} at {fact.place:.0%}" for fact in evidence.facts if fact not in found)
        said = f"{len(found)} of {len(evidence.facts)}; lost {lost}; said {reply.content[:80]!r}"
        wrong.append(fault("needle.lost", "facts", f"at least {limits.found:.0%}", said))
    figures = {"prompt_tokens": reply.prompt_tokens, "found": len(found), "seconds": reply.seconds}
    return judged(wrong, unknown, f"{len(found)} of {len(evidence.facts)} facts found in {reply.prompt_tokens} tokens", figures)
