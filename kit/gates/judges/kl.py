"""kl: SGLang's self-consistency test. The tokens that decode sampled are scored again by a prefill pass.

r = log p(prefill) - log p(decode); k3 = e^r - 1 - r, never negative; the mean of each prompt, then the mean of these. An error
that both passes share scores 0: this gate does not stand alone. The estimator k3: J. Schulman, 2020.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from kit.gates.declare import Frozen
from kit.gates.judges.idle import Idle, idle_faults
from kit.gates.verdict import Fault, Judgement, fault, judged


class Scored(Frozen):
    """One prompt: log probabilities (natural) of the same tokens by the two passes."""

    prompt: int
    decode: tuple[float, ...]
    prefill: tuple[float, ...]


class Repeat(Frozen):
    """One pass over one set."""

    kind: Literal["short", "long"]
    prompts: tuple[Scored, ...]


class Evidence(Frozen):
    """All passes."""

    repeats: tuple[Repeat, ...]
    idle: Idle


class Limits(Frozen):
    """Of the mean of means; for p99 and the maximum None says: reported, not judged yet."""

    short_mean: float = 0.03
    long_mean: float = 0.06
    p99: float | None = None
    maximum: float | None = None


def k3(scored: Scored) -> list[float]:
    """Of each token. Raises ValueError when the passes differ in length."""
    return [math.exp(a - b) - 1 - (a - b) for a, b in zip(scored.prefill, scored.decode, strict=True)]


def quantile(values: Sequence[float], q: float) -> float:
    """Nearest rank; NaN for no value."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, math.ceil(q * len(ordered)) - 1)] if ordered else math.nan


def judge(evidence: Evidence, limits: Limits, repeats: int) -> Judgement:
    """The worst repeat of each set counts. NaN, an empty pass or unequal lengths fail."""
    wrong: list[Fault] = []
    unknown = idle_faults("kl", evidence.idle)
    figures: dict[str, float | int | str | None] = {}
    for kind, limit in (("short", limits.short_mean), ("long", limits.long_mean)):
        mine = [one for one in evidence.repeats if one.kind == kind]
        if len(mine) != repeats:
            wrong.append(fault("kl.count", f"{kind} set", f"{repeats} repeats", len(mine)))
        means: list[float] = []
        tokens: list[float] = []
        for number, repeat in enumerate(mine, 1):
            where = f"{kind} set, repeat {number}"
            broken = [one.prompt for one in repeat.prompts if not one.decode or len(one.decode) != len(one.prefill)]
            if broken or not repeat.prompts:
                found = f"prompts {broken} have none, or unequal numbers" if broken else "no prompt"
                wrong.append(fault("kl.count", where, "log probabilities of both passes", found))
                continue
            values = [k3(one) for one in repeat.prompts]
            tokens += [value for prompt in values for value in prompt]
            means.append(sum(sum(prompt) / len(prompt) for prompt in values) / len(values))
            if not means[-1] <= limit:
                step = "decode and prefill disagree: an attention or cache fault, or a changed kernel"
                wrong.append(fault("kl.mean", where, f"at most {limit:g}", f"{means[-1]:.5f}", step))
        top, p99 = max(tokens, default=math.nan), quantile(tokens, 0.99)
        figures |= {f"{kind}_mean": max(means, default=math.nan), f"{kind}_p99": p99, f"{kind}_max": top}
        for name, value, bound in (("p99", p99, limits.p99), ("max", top, limits.maximum)):
            if bound is not None and not value <= bound:
                wrong.append(fault(f"kl.{name}", f"{kind} set", f"at most {bound:g}", f"{value:.5f}"))
    return judged(
        wrong, unknown, f"worst means {_shown(figures['short_mean'])} short, {_shown(figures['long_mean'])} long", figures
    )


def _shown(value: float | int | str | None) -> str:
    return f"{value:.5f}" if isinstance(value, float) else "none"
