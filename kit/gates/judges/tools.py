"""tools: a call in every form that clients ask for it, each streamed and not, and none of it leaked into the text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kit.gates.declare import Frozen
from kit.gates.judges.replies import LEAK, Call, Reply, broken
from kit.gates.verdict import Fault, Judgement, fault, judged

CITIES = ("Paris", "Oslo", "Lima")


def _tool(name: str, about: str, properties: dict[str, Any], strict: bool = False) -> dict[str, Any]:
    # Closed values keep a call short whatever the model: an open string may never end.
    schema = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    function = {"name": name, "description": about, "parameters": schema, **({"strict": True} if strict else {})}
    return {"type": "function", "function": function}


WEATHER = _tool("get_weather", "The weather of a city, now", {"city": {"type": "string", "enum": list(CITIES)}})
CLOCK = _tool("get_time", "The time of day in a city", {"city": {"type": "string", "enum": list(CITIES)}})
STRICT = _tool("get_weather", "The weather of a city, now", {"city": {"type": "string", "enum": list(CITIES)}}, strict=True)
ASK = {"role": "user", "content": "What is the weather in Paris right now?"}
ASK_TWO = {"role": "user", "content": "What is the weather in Paris and in Oslo right now? Ask for both at once."}
NAMED = {"type": "function", "function": {"name": "get_weather"}}
CALLED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}],
}
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "content": '{"city": "Paris", "sky": "clear", "celsius": 21}'}


@dataclass(frozen=True)
class Case:
    """A request and what must come of it."""

    messages: tuple[Mapping[str, Any], ...]
    tools: tuple[Mapping[str, Any], ...]
    choice: Any
    least: int
    most: int
    says: str = ""
    """Text that the content must hold."""

    @property
    def several(self) -> bool:
        """Whether more than one call may come. A model that may give more than one never needs to stop."""
        return bool(self.choice == "auto")


CASES: Mapping[str, Case] = {
    "auto": Case((ASK,), (WEATHER, CLOCK), "auto", 1, 1),
    "none": Case((ASK,), (WEATHER,), "none", 0, 0),
    "required": Case((ASK,), (WEATHER, CLOCK), "required", 1, 1),
    "named": Case((ASK,), (WEATHER, CLOCK), NAMED, 1, 1),
    "strict": Case((ASK,), (STRICT,), "required", 1, 1),
    "parallel": Case((ASK_TWO,), (WEATHER,), "auto", 2, 2),
    "multi_turn": Case((ASK, CALLED, ANSWERED), (WEATHER,), "auto", 0, 0, says="21"),
}


class Evidence(Frozen):
    """A reply for each case that the profile asks for, twice: streamed and whole."""

    replies: tuple[Reply, ...]


class Limits(Frozen):
    """Nothing to set."""


def body(case: Case, model: str, tokens: int) -> dict[str, Any]:
    """The request, without ``stream``."""
    return {
        "model": model,
        "messages": list(case.messages),
        "tools": list(case.tools),
        "tool_choice": case.choice,
        "parallel_tool_calls": case.several,
        "temperature": 0,
        "max_tokens": tokens,
    }


def judge(evidence: Evidence, limits: Limits, cases: tuple[str, ...]) -> Judgement:
    """Every case both ways; calls are well formed, of offered tools, as many as asked; nothing leaks."""
    wrong: list[Fault] = []
    for name in cases:
        for streamed in (False, True):
            mine = [one for one in evidence.replies if one.case == name and one.streamed is streamed]
            if len(mine) != 1:
                where = f"{name}, {'streamed' if streamed else 'whole'}"
                wrong.append(fault("tools.missing", where, "one reply", len(mine)))
            for reply in mine:
                wrong += _reply(CASES[name], reply)
    figures = {"replies": len(evidence.replies), "calls": sum(len(one.calls) for one in evidence.replies)}
    return judged(wrong, (), f"{len(cases)} forms, streamed and whole: {', '.join(cases)}", figures)


def _reply(case: Case, reply: Reply) -> list[Fault]:
    if (problem := broken(reply)) is not None:
        return [fault("tools.request", reply.where, *problem)]
    out: list[Fault] = []
    for part, text in (("content", reply.content), ("reasoning", reply.reasoning)):
        if leak := LEAK.search(text):
            found = f"{leak.group()!r} at {leak.start()}: {text[max(0, leak.start() - 20) : leak.end() + 20]!r}"
            out.append(
                fault("tools.leak", reply.where, f"no mark of a tool call in {part}", found, "the tool parser is not V4.1's")
            )
    count = len(reply.calls)
    if not case.least <= count <= case.most:
        expected = f"{case.least} calls" if case.least == case.most else f"{case.least} to {case.most} calls"
        out.append(fault("tools.calls", reply.where, expected, f"{count}; content {reply.content[:80]!r}"))
    for call in reply.calls:
        out += _call(case, reply, call)
    want = {"tool_calls"} if case.least else {"stop", "length"}
    # A named or required call ends as `stop` in the OpenAI interface.
    want |= {"stop"} if case.choice not in ("auto", "none") else set()
    if count and reply.finish not in want:
        out.append(fault("tools.finish", reply.where, " or ".join(sorted(want)), reply.finish))
    if case.says and case.says not in reply.content:
        out.append(fault("tools.answer", reply.where, f"{case.says!r} in the content", repr(reply.content[:120])))
    return out


def _call(case: Case, reply: Reply, call: Call) -> list[Fault]:
    offered = {tool["function"]["name"]: tool["function"]["parameters"]["properties"] for tool in case.tools}
    if call.name not in offered:
        return [fault("tools.name", reply.where, f"one of {', '.join(offered)}", repr(call.name))]
    if isinstance(case.choice, Mapping) and call.name != case.choice["function"]["name"]:
        return [fault("tools.name", reply.where, case.choice["function"]["name"], call.name)]
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        return [fault("tools.arguments", reply.where, "JSON", repr(call.arguments[:120]))]
    properties = offered[call.name]
    if not isinstance(arguments, dict) or set(arguments) != set(properties):
        return [fault("tools.arguments", reply.where, f"an object with {', '.join(properties)}", repr(call.arguments[:120]))]
    return [
        fault("tools.arguments", f"{reply.where} {key}", f"one of {', '.join(properties[key]['enum'])}", repr(value))
        for key, value in arguments.items()
        if value not in properties[key]["enum"]
    ]
