"""The three sources of which cores are fast, each on its own. Pure.

``hint``: four files of sysfs that can disagree. One that is flat says little (``cpuinfo_max_freq`` can be equal where only
some cores boost), so it does not contradict one that splits; two that split differently, or one that is a smear beside one
that splits, make the hint ambiguous.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kit.cores.model import Answer, Source
from kit.cores.split import Split, split
from kit.cores.topology import Core, by_core
from kit.facts.model import Cpu, LogicalCpu
from kit.facts.unknown import Unknown, is_known

_MHZ = "MHz"
_HINTS: tuple[tuple[str, Callable[[LogicalCpu], float | Unknown], str], ...] = (
    ("cpuinfo_max_freq", lambda c: c.max_khz / 1000 if is_known(c.max_khz) else c.max_khz, _MHZ),
    ("highest_perf", lambda c: c.highest_perf, ""),
    ("prefcore_ranking", lambda c: c.prefcore_ranking, ""),
    ("base_frequency", lambda c: c.base_khz / 1000 if is_known(c.base_khz) else c.base_khz, _MHZ),
)


def hint(cores: Mapping[int, Core]) -> Source:
    """What sysfs claims."""
    found: dict[str, Split] = {}
    words: list[str] = []
    for name, read, unit in _HINTS:
        values = by_core(cores, read)
        if is_known(values):
            found[name] = split(values, unit)
            words.append(f"{name} {found[name].answer}: {found[name].text}")
        else:
            words.append(f"{name} {values}")
    text = "; ".join(words)
    splits = {name: one for name, one in found.items() if one.answer is Answer.SPLIT}
    smears = [name for name, one in found.items() if one.answer is Answer.AMBIGUOUS]
    if len({one.fast for one in splits.values()}) > 1:
        return Source(name="hint", answer=Answer.AMBIGUOUS, text=f"{' and '.join(splits)} name different cores; {text}")
    if smears:
        return Source(name="hint", answer=Answer.AMBIGUOUS, text=text)
    if not splits:
        flat = found.get("cpuinfo_max_freq")
        answer = Answer.FLAT if found else Answer.UNKNOWN
        return Source(name="hint", answer=answer, fast_mhz=flat.fast_value if flat else None, text=text)
    first = next(iter(splits.values()))
    mhz = splits.get("cpuinfo_max_freq")
    return Source(
        name="hint",
        answer=Answer.SPLIT,
        fast_cores=tuple(sorted(first.fast)),
        fast_mhz=mhz.fast_value if mhz else None,
        slow_mhz=mhz.slow_value if mhz else None,
        text=text,
    )


def speed_select(cpu: Cpu, cores: Mapping[int, Core]) -> Source:
    """Priority Core Turbo: the cores in CLOS 0 while SST-TF and SST-CP are on."""
    name, now = "speed_select", cpu.priority
    if not is_known(now.supported) or not is_known(now.enabled):
        lacking = now.supported if not is_known(now.supported) else now.enabled
        return Source(name=name, answer=Answer.UNKNOWN, text=f"Priority Core Turbo {lacking}")
    if not now.enabled:
        if now.supported:
            return Source(name=name, answer=Answer.OFF, text="Priority Core Turbo is supported and off")
        return Source(name=name, answer=Answer.FLAT, text="Priority Core Turbo is not supported")
    if not is_known(now.priority_cpus):
        return Source(name=name, answer=Answer.UNKNOWN, text=f"Priority Core Turbo is on, its CPUs {now.priority_cpus}")
    chosen = set(now.priority_cpus)
    fast = sorted(head for head, core in cores.items() if chosen & set(core.cpus))
    halves = [head for head in fast if not set(cores[head].cpus) <= chosen]
    if halves:
        return Source(name=name, answer=Answer.AMBIGUOUS, text=f"CLOS 0 holds only one thread of cores {halves}")
    if not fast or len(fast) == len(cores):
        which = "no core" if not fast else "every core"
        return Source(name=name, answer=Answer.OFF, text=f"Priority Core Turbo is on, but {which} is in CLOS 0")
    mhz = float(now.bucket_mhz) if is_known(now.bucket_mhz) else None
    text = f"Priority Core Turbo is on, {len(fast)} cores in CLOS 0, at up to {now.bucket_mhz} MHz"
    return Source(name=name, answer=Answer.SPLIT, fast_cores=tuple(fast), fast_mhz=mhz, text=text)


def measured(cpu: Cpu, cores: Mapping[int, Core]) -> Source:
    """The dependent-add probe. Under full load decides: alone, a core may boost that cannot while the others work."""
    name = "measured"
    if not is_known(cpu.measured):
        return Source(name=name, answer=Answer.UNKNOWN, text=str(cpu.measured))
    by_head = {core.core_cpu: core for core in cpu.measured.cores}
    unit = _MHZ if cpu.measured.unit == "mhz" else "x the median core"
    missing: Unknown = Unknown(unknown="not in the measurement")

    def loaded(one: LogicalCpu) -> float | Unknown:
        head = min(one.siblings) if is_known(one.siblings) else one.cpu
        return by_head[head].loaded_mhz if head in by_head else missing

    def alone(one: LogicalCpu) -> float | Unknown:
        head = min(one.siblings) if is_known(one.siblings) else one.cpu
        return by_head[head].alone_mhz if head in by_head else missing

    values = by_core(cores, loaded)
    if not is_known(values):
        return Source(name=name, answer=Answer.UNKNOWN, text=f"under load {values}")
    found = split(values, unit)
    idle = by_core(cores, alone)
    text = f"under load {found.text}; alone {split(idle, unit).text if is_known(idle) else idle}"
    mhz = cpu.measured.unit == "mhz"
    if found.answer is not Answer.SPLIT:
        flat = found.fast_value if mhz and found.answer is Answer.FLAT else None
        return Source(name=name, answer=found.answer, fast_mhz=flat, text=text)
    return Source(
        name=name,
        answer=Answer.SPLIT,
        fast_cores=tuple(sorted(found.fast)),
        fast_mhz=found.fast_value if mhz else None,
        slow_mhz=found.slow_value if mhz else None,
        text=text,
    )
