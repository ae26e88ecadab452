"""The engine's own interface, over HTTP. Edge: every method talks; evidence comes back as recorded types.

Raises KitError(UNREACHABLE) when the engine does not answer at all, KitError(TIMEOUT) when it hangs; an error status is in
the reply.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from kit.errors import ExitCode, KitError, failure
from kit.gates.judges.replies import Call, Reply

SAMPLE = re.compile(r"^(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?\s+(?P<value>\S+)\s*$")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True)
class Generated:
    """One prompt of a /generate batch."""

    tokens: tuple[int, ...]
    text: str
    logprobs: tuple[float, ...]
    """Of the generated tokens."""
    cached_tokens: int | None
    prompt_tokens: int | None
    finish: str | None


@dataclass
class Stream:
    """A stream being read."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    arguments: dict[int, list[str]] = field(default_factory=dict)
    finish: str | None = None
    usage: Mapping[str, Any] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    pieces: list[int] = field(default_factory=list)
    error: str = ""


class Engine:
    """One engine. Use as a context manager."""

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 600.0) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self.url = url
        limits = httpx.Limits(max_connections=128)
        # No proxy of the operator's shell: the engine is on a private address.
        self._http = httpx.Client(
            base_url=url, headers=headers, timeout=httpx.Timeout(timeout_s, connect=10), limits=limits, trust_env=False
        )

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._http.close()

    @contextmanager
    def _answering(self, what: str) -> Iterator[None]:
        where = f"{self.url}{what}"
        try:
            yield
        except httpx.TimeoutException as error:
            step = "is the scheduler alive? see the engine's log"
            raise KitError(failure("engine.timeout", where, "an answer", type(error).__name__, step), ExitCode.TIMEOUT) from None
        except httpx.HTTPError as error:
            step = "is the engine up? see its unit"
            raise KitError(failure("engine.unreachable", where, "an answer", str(error), step), ExitCode.UNREACHABLE) from None

    def get(self, path: str) -> httpx.Response:
        """Any GET."""
        with self._answering(path):
            return self._http.get(path)

    def json(self, path: str) -> Any | None:
        """A JSON answer; None for another status or for what is no JSON."""
        response = self.get(path)
        if response.status_code != 200:
            return None
        try:
            return response.json()
        except ValueError:
            return None

    def health(self) -> int:
        """Status of /health; it asks the scheduler for a token and takes a second at least."""
        return self.get("/health").status_code

    def models(self) -> tuple[str, ...] | None:
        """Names that this engine serves."""
        answer = self.json("/v1/models")
        return tuple(str(one["id"]) for one in answer["data"]) if answer else None

    def counters(self) -> dict[str, float]:
        """Sums over all labels of each sample of /metrics, but for ``tp_rank`` other than 0: ranks count the same tokens."""
        response = self.get("/metrics")
        return read_metrics(response.text) if response.status_code == 200 else {}

    def running(self) -> int | None:
        """Requests that run or wait, now."""
        answer = self.json("/v1/loads")
        if not answer:
            return None
        loads = answer.get("loads", [])
        keys = ("num_running_reqs", "num_waiting_reqs")
        found = [load[key] for load in loads for key in keys if isinstance(load.get(key), int)]
        return sum(found) if found else None

    def flush(self) -> bool:
        """Empty the caches; False when the engine refused (requests are running)."""
        with self._answering("/flush_cache"):
            return self._http.post("/flush_cache").status_code == 200

    def generate(self, prompts: Sequence[Sequence[int]], tokens: int, logprobs: bool = False) -> list[Generated]:
        """Greedy, exactly ``tokens`` for each prompt. Raises KitError(GATE_FAILED, ``engine.generate``) for an error status."""
        body: dict[str, Any] = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": {"temperature": 0, "max_new_tokens": tokens, "ignore_eos": True},
        }
        if logprobs:
            body |= {"return_logprob": True, "return_text_in_logprobs": False, "logprob_start_len": -1}
        return [_generated(one) for one in self._post("/generate", body)]

    def score(self, prompts: Sequence[Sequence[int]], top: int = 0) -> list[Mapping[str, Any]]:
        """``meta_info`` of a prefill over whole prompts: ``input_token_logprobs`` and, with ``top``, ``input_top_logprobs``."""
        body: dict[str, Any] = {
            "input_ids": [list(prompt) for prompt in prompts],
            "sampling_params": {"temperature": 0, "max_new_tokens": 0},
            "return_logprob": True,
            "return_text_in_logprobs": False,
            "logprob_start_len": 0,
            "top_logprobs_num": top,
        }
        return [one["meta_info"] for one in self._post("/generate", body)]

    def _post(self, path: str, body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        with self._answering(path):
            response = self._http.post(path, json=body)
        if response.status_code != 200:
            found = f"status {response.status_code}: {response.text[:200]}"
            raise KitError(
                failure("engine.generate", f"{self.url}{path}", "status 200", found, "see the engine's log"), ExitCode.GATE_FAILED
            )
        answer = response.json()
        return answer if isinstance(answer, list) else [answer]

    def chat(self, case: str, body: Mapping[str, Any], streamed: bool) -> Reply:
        """One chat completion; never raises for what the engine did wrong: it is in the reply."""
        return self.timed_chat(case, body, streamed)[0]

    def timed_chat(
        self, case: str, body: Mapping[str, Any], streamed: bool, clock: Callable[[], float] = time.perf_counter
    ) -> tuple[Reply, Stream, float]:
        """The reply, the stream as it came, and when it was sent (by ``clock``)."""
        asked = {**body, "stream": streamed, **({"stream_options": {"include_usage": True}} if streamed else {})}
        sent, stream, status, error = clock(), Stream(), 0, ""
        try:
            with self._http.stream("POST", "/v1/chat/completions", json=asked) as response:
                status = response.status_code
                if status != 200:
                    error = response.read().decode(errors="replace")[:300]
                elif streamed:
                    for line in response.iter_lines():
                        _event(stream, line, clock)
                else:
                    _whole(stream, json.loads(response.read()))
        except (httpx.HTTPError, ValueError, KeyError) as problem:
            error = f"{type(problem).__name__}: {problem}"
            status = status if status != 200 else 0
        reply = Reply(
            case=case, streamed=streamed, status=status if not stream.error else 0, error=error or stream.error,
            content="".join(stream.content), reasoning="".join(stream.reasoning),
            calls=tuple(Call(name=stream.names[i], arguments="".join(stream.arguments.get(i, ()))) for i in sorted(stream.names)),
            finish=stream.finish, chunks=len(stream.times), tokens=stream.usage.get("completion_tokens"),
            prompt_tokens=stream.usage.get("prompt_tokens"), seconds=clock() - sent,
        )  # fmt: skip
        return reply, stream, sent


def _generated(one: Mapping[str, Any]) -> Generated:
    meta = one["meta_info"]
    finish = meta.get("finish_reason") or {}
    return Generated(
        tuple(one["output_ids"]),
        one["text"],
        tuple(float(entry[0]) for entry in meta.get("output_token_logprobs") or ()),
        meta.get("cached_tokens"),
        meta.get("prompt_tokens"),
        finish.get("type"),
    )


def _event(stream: Stream, line: str, clock: Callable[[], float]) -> None:
    if not line.startswith("data:") or line == "data: [DONE]":
        return
    event = json.loads(line[5:])
    if "error" in event:
        stream.error = str(event["error"])[:300]
        return
    stream.usage = event.get("usage") or stream.usage
    for choice in event.get("choices", ()):
        delta = choice.get("delta") or {}
        if _take(stream, delta):
            stream.times.append(clock())
        stream.finish = choice.get("finish_reason") or stream.finish


def _take(stream: Stream, part: Mapping[str, Any]) -> bool:
    """Whether there was anything in it."""
    content, reasoning = part.get("content") or "", part.get("reasoning_content") or ""
    stream.content += [content] if content else []
    stream.reasoning += [reasoning] if reasoning else []
    calls = part.get("tool_calls") or ()
    for place, call in enumerate(calls):
        index = call.get("index", place)
        function = call.get("function") or {}
        if function.get("name"):
            stream.names[index] = function["name"]
        stream.arguments.setdefault(index, []).append(function.get("arguments") or "")
    return bool(content or reasoning or calls)


def _whole(stream: Stream, answer: Mapping[str, Any]) -> None:
    choice = answer["choices"][0]
    _take(stream, choice["message"])
    stream.finish = choice.get("finish_reason")
    stream.usage = answer.get("usage") or {}


def read_metrics(text: str) -> dict[str, float]:
    """Prometheus text: name, or name{mode=...}, to the sum over its other labels."""
    out: dict[str, float] = {}
    for line in text.splitlines():
        found = SAMPLE.match(line)
        if not found:
            continue
        labels = dict(LABEL.findall(found["labels"] or ""))
        if labels.get("tp_rank", "0") != "0":
            continue
        name = found["name"] + (f"{{mode={labels['mode']}}}" if "mode" in labels else "")
        try:
            out[name] = out.get(name, 0.0) + float(found["value"])
        except ValueError:
            continue
    return out
