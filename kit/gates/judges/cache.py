"""cache_restore: a conversation is pushed out of the device's cache by other text, comes back from host memory, and goes on as if
it had never left."""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, Judgement, fault, judged


class Turn(Frozen):
    """One turn, at temperature 0: as computed from nothing, and as it came with the cache."""

    turn: int
    prompt_tokens: int
    fresh: tuple[int, ...]
    restored: tuple[int, ...]
    cached_tokens: int | None
    """Of the prompt, by the engine's own account; None: not told."""


class Evidence(Frozen):
    """All turns."""

    turns: tuple[Turn, ...]
    host_hits: int | None
    """Tokens that came from host memory meanwhile; None: this engine has no host cache, or does not say."""
    host_cache: bool
    """Whether the profile has one."""


class Limits(Frozen):
    """Share of each prompt that must come from a cache, and share of tokens that must be the same."""

    cached: float = 0.5
    same: float = 1.0


def judge(evidence: Evidence, limits: Limits, turns: int) -> Judgement:
    """Same tokens, and proof that a cache gave them."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    if len(evidence.turns) != turns:
        wrong.append(fault("cache_restore.count", "turns", turns, len(evidence.turns)))
    for one in evidence.turns:
        where = f"turn {one.turn}"
        same = sum(a == b for a, b in zip(one.fresh, one.restored, strict=False))
        share = same / len(one.fresh) if one.fresh else float("nan")
        if not share >= limits.same or len(one.fresh) != len(one.restored):
            found = f"{same} of {len(one.fresh)} tokens the same"
            step = "what came back from the cache is not what went in"
            wrong.append(fault("cache_restore.changed", where, f"at least {limits.same:.0%}", found, step))
        if one.cached_tokens is None:
            unknown.append(fault("cache_restore.unknown", where, "cached tokens", "the engine does not say"))
        elif not one.cached_tokens >= limits.cached * one.prompt_tokens:
            found = f"{one.cached_tokens} of {one.prompt_tokens} tokens"
            wrong.append(
                fault("cache_restore.missed", where, f"at least {limits.cached:.0%} from the cache", found, "nothing was kept")
            )
    if evidence.host_cache and evidence.host_hits is None:
        unknown.append(fault("cache_restore.unknown", "host memory", "hits", "the engine does not say"))
    elif evidence.host_cache and not evidence.host_hits:
        step = "HiCache is on and gave nothing: see its budget, `Pin budget: 0`"
        wrong.append(fault("cache_restore.host", "host memory", "tokens from host memory", 0, step))
    figures = {"cached_tokens": sum(one.cached_tokens or 0 for one in evidence.turns), "host_hits": evidence.host_hits}
    return judged(wrong, unknown, f"{turns} turns came back unchanged", figures)
