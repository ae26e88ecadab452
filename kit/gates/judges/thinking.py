"""thinking: reasoning is there when it is asked for, apart from the content, and not there otherwise. Streamed and not."""

from __future__ import annotations

from typing import Any

from kit.gates.declare import Frozen
from kit.gates.judges.replies import THINK, Reply, broken
from kit.gates.verdict import Fault, Judgement, fault, judged

CASES = ("on", "off")
QUESTION = "A farmer has 17 sheep. All but 9 run away. How many are left? Answer in one sentence."


class Evidence(Frozen):
    """A reply for each case, both ways."""

    replies: tuple[Reply, ...]


class Limits(Frozen):
    """Fewer characters of reasoning than this are none."""

    reasoning_min: int = 8


def body(case: str, model: str, tokens: int) -> dict[str, Any]:
    """``chat_template_kwargs.thinking`` is what switches it; ``enable_thinking`` alone leaves it off with V4.1."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": QUESTION}],
        "chat_template_kwargs": {"thinking": case == "on"},
        "temperature": 0,
        "max_tokens": tokens,
    }


def judge(evidence: Evidence, limits: Limits, cases: tuple[str, ...] = CASES) -> Judgement:
    """Both cases both ways."""
    wrong: list[Fault] = []
    for name in cases:
        for streamed in (False, True):
            mine = [one for one in evidence.replies if one.case == name and one.streamed is streamed]
            if len(mine) != 1:
                wrong.append(fault("thinking.missing", f"{name}, {'streamed' if streamed else 'whole'}", "one reply", len(mine)))
            for reply in mine:
                wrong += _reply(reply, limits)
    longest = max((len(one.reasoning) for one in evidence.replies), default=0)
    return judged(wrong, (), "reasoning apart when on, none when off", {"reasoning_characters_max": longest})


def _reply(reply: Reply, limits: Limits) -> list[Fault]:
    if (problem := broken(reply)) is not None:
        return [fault("thinking.request", reply.where, *problem)]
    out: list[Fault] = []
    for part, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        if mark := THINK.search(text):
            step = "reasoning leaks: the reasoning parser is not V4.1's"
            out.append(fault("thinking.leak", reply.where, f"no mark of thinking in {part}", repr(mark.group()), step))
    if not reply.content.strip():
        out.append(fault("thinking.content", reply.where, "an answer in content", "nothing", "it all went into reasoning"))
    length = len(reply.reasoning.strip())
    if reply.case == "on" and length < limits.reasoning_min:
        found = f"{length} characters"
        out.append(fault("thinking.absent", reply.where, f"at least {limits.reasoning_min} characters of reasoning", found))
    if reply.case == "off" and length:
        out.append(fault("thinking.present", reply.where, "no reasoning", repr(reply.reasoning[:80])))
    return out
