"""speed: one stream's decode rate against the profile's floor.

n tokens, k of them in the first event: (n - k) / (t_last - t_first) is what decode did; n / (t_last - t_first), as it was first
published, is n / (n - k) times too high. Both are recorded.
"""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.judges.idle import Idle, idle_faults
from kit.gates.verdict import Fault, Judgement, fault, judged


class Run(Frozen):
    """One stream, by the client's clock."""

    tokens: int
    first_tokens: int
    """In the first event."""
    seconds: float
    """From the first event to the last."""
    first_s: float
    """From sending to the first event."""


class Evidence(Frozen):
    """All streams, one after another."""

    runs: tuple[Run, ...]
    idle: Idle


class Limits(Frozen):
    """Tokens per second; None: nobody measured this profile yet, and the gate says so."""

    floor: float | None = None


def rate(run: Run) -> float:
    """Tokens per second after the first event; NaN when nothing can be said."""
    return (run.tokens - run.first_tokens) / run.seconds if run.seconds > 0 else float("nan")


def judge(evidence: Evidence, limits: Limits, repetitions: int, tokens: int) -> Judgement:
    """The mean over repetitions against the floor."""
    wrong: list[Fault] = []
    unknown = idle_faults("speed", evidence.idle)
    if len(evidence.runs) != repetitions:
        wrong.append(fault("speed.count", "streams", repetitions, len(evidence.runs)))
    wrong += [
        fault("speed.cut", f"stream {i}", f"{tokens} tokens", run.tokens)
        for i, run in enumerate(evidence.runs)
        if run.tokens != tokens
    ]
    rates = [rate(run) for run in evidence.runs]
    mean = sum(rates) / len(rates) if rates else float("nan")
    published = [run.tokens / run.seconds if run.seconds > 0 else float("nan") for run in evidence.runs]
    if limits.floor is None:
        step = "measure an accepted boot with `invoke bench`, then set the floor in fleet/gates/speed.yml"
        unknown.append(fault("speed.no_floor", "floor", "tokens per second", "none set for this profile", step))
    elif not mean >= limits.floor:
        step = "stock kernels, slow cores or a clock that fell: see plugin, graphs, fast_cores and hardware"
        wrong.append(fault("speed.slow", "one stream", f"at least {limits.floor:g} tokens/s", f"{mean:.2f}", step))
    figures = {
        "tokens_per_s": mean,
        "tokens_per_s_published": sum(published) / len(published) if published else float("nan"),
        "first_token_s": sum(run.first_s for run in evidence.runs) / len(evidence.runs) if evidence.runs else float("nan"),
        "slowest": min(rates, default=float("nan")),
    }
    return judged(wrong, unknown, f"{mean:.1f} tokens/s, floor {limits.floor or 0:g}", figures)
