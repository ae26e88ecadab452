"""Which cores are fast: one decision from three sources, or a refusal that shows everything seen. Pure.

1. A source that was measured is the truth: flat or ambiguous when measured is refused, whatever the others say.
2. All sources that split must name the same cores; otherwise they contradict each other, and the host is refused.
3. ``evidence: measured`` needs the measured source to split. ``evidence: hint`` needs any one to. An ambiguous hint is
   outweighed by a configuration (Speed Select) or a measurement that splits, never by nothing.
4. The cores must be as many as declared, and at the declared frequencies (within ``TOLERANCE``) where a source gives one.
5. A spec whose fast cores are all cores (Grace) says that the cores are alike: then flat is what is asked for, and a split
   or a smear is refused.

So more evidence can turn a decision into a refusal or a refusal into a decision, but never one decision into another.
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.cores.evidence import hint, measured, speed_select
from kit.cores.model import Answer, CoreDecision, Source
from kit.cores.topology import physical
from kit.facts.model import Cpu
from kit.facts.unknown import is_known
from kit.spec.model import Cpus

TOLERANCE = 0.05


def decide(spec: Cpus, cpu: Cpu) -> CoreDecision:
    """The decision about one host. Never raises on facts: what cannot be told is refused."""
    cores = physical(cpu)
    pct = _can_enable_pct(cpu, ())
    if not is_known(cores):
        return _refusal(f"the physical cores are {cores}", (), pct)
    sources = (hint(cores), speed_select(cpu, cores), measured(cpu, cores))
    pct = _can_enable_pct(cpu, sources)
    alike = spec.fast_cores.count == len(cores)
    problem = _problem_alike(spec, sources) if alike else _problem(spec, sources)
    if problem:
        return _refusal(problem, sources, pct)
    agreeing = [source for source in sources if source.answer is (Answer.FLAT if alike else Answer.SPLIT)]
    fast = tuple(sorted(cores)) if alike else agreeing[0].fast_cores
    names = tuple(source.name for source in agreeing)
    mhz = next((f" at {source.fast_mhz:.0f} MHz" for source in agreeing if source.fast_mhz is not None), "")
    reason = f"{len(fast)} of {len(cores)} physical cores are fast{mhz} by {' and '.join(names)}; {_seen(sources)}"
    return CoreDecision(fast_cores=fast, refused=None, reason=reason, evidence=names, sources=sources, can_enable_pct=pct)


def _problem(spec: Cpus, sources: Sequence[Source]) -> str | None:
    """Why there is no decision."""
    by_name = {source.name: source for source in sources}
    truth = by_name["measured"]
    agreeing = [source for source in sources if source.answer is Answer.SPLIT]
    need = spec.fast_cores.evidence
    if truth.answer in (Answer.FLAT, Answer.AMBIGUOUS):
        return f"measured, the cores are {'all alike' if truth.answer is Answer.FLAT else 'a smear without a clear gap'}"
    if need == "measured" and truth.answer is not Answer.SPLIT:
        return "the spec asks for measured evidence, and the cores were not measured in this boot"
    if len({source.fast_cores for source in agreeing}) > 1:
        listed = ", ".join(f"{source.name} names {list(source.fast_cores)}" for source in agreeing)
        return f"the sources contradict each other: {listed}"
    if not agreeing:
        return _nothing_splits(sources)
    found = len(agreeing[0].fast_cores)
    if found != spec.fast_cores.count:
        return f"{found} fast cores where {spec.fast_cores.count} are declared"
    return _wrong_speed(spec, agreeing)


def _problem_alike(spec: Cpus, sources: Sequence[Source]) -> str | None:
    """The same where all cores are declared to be alike."""
    odd = [source for source in sources if source.answer in (Answer.SPLIT, Answer.AMBIGUOUS)]
    if odd:
        return f"all cores are declared fast, but by {' and '.join(source.name for source in odd)} they are not alike"
    flat = [source for source in sources if source.answer is Answer.FLAT]
    if spec.fast_cores.evidence == "measured" and "measured" not in [source.name for source in flat]:
        return "the spec asks for measured evidence, and the cores were not measured in this boot"
    if not [source for source in flat if source.name != "speed_select"]:
        return "nothing says how fast the cores are"
    return _wrong_speed(spec, flat)


def _nothing_splits(sources: Sequence[Source]) -> str:
    answers = {source.answer for source in sources}
    if Answer.AMBIGUOUS in answers:
        return "the cores' speeds are ambiguous"
    if Answer.OFF in answers:
        return "all cores are alike while Priority Core Turbo is off; it can be switched on"
    if Answer.FLAT in answers:
        return "all cores are alike, and there is no Priority Core Turbo known to switch on"
    return "nothing says which cores are fast"


def _wrong_speed(spec: Cpus, agreeing: Sequence[Source]) -> str | None:
    want = spec.fast_cores
    for source in agreeing:
        for what, found, declared in (("fast", source.fast_mhz, want.mhz), ("slow", source.slow_mhz, want.slow_mhz)):
            if found is None or declared is None:
                continue
            if not abs(found - declared) <= TOLERANCE * declared:
                return f"{source.name} has the {what} cores at {found:.0f} MHz where {declared} MHz are declared"
    return None


def _can_enable_pct(cpu: Cpu, sources: Sequence[Source]) -> bool:
    now = cpu.priority
    in_force = any(source.name == "speed_select" and source.answer is Answer.SPLIT for source in sources)
    return is_known(now.supported) and now.supported and is_known(now.enabled) and not in_force


def _seen(sources: Sequence[Source]) -> str:
    return " | ".join(f"{source.name} is {source.answer}: {source.text}" for source in sources)


def _refusal(problem: str, sources: tuple[Source, ...], pct: bool) -> CoreDecision:
    reason = f"{problem}; {_seen(sources)}" if sources else problem
    return CoreDecision(fast_cores=(), refused=problem, reason=reason, evidence=(), sources=sources, can_enable_pct=pct)
