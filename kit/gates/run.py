"""Runs a profile's gates against one engine. Edge: the clock and threads; judging is pure and lies in ``judges``.

Order: what only reads, together; then what needs the engine to itself, one after another; then what talks, beside each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, cast

from pydantic import BaseModel

from kit.engine.model import EngineProfile
from kit.errors import KitError
from kit.gates import enginelog
from kit.gates.declare import Batch, Sizes
from kit.gates.gather import numeric, talking
from kit.gates.gather.client import Engine
from kit.gates.gather.site import Site
from kit.gates.judges import (
    arithmetic,
    cache,
    configuration,
    cores,
    greedy,
    hardware,
    image,
    kl,
    needle,
    plugin,
    speculation,
    speed,
    thinking,
    tools,
)
from kit.gates.names import ALONE, GATES, GateName
from kit.gates.prompts import Prompts
from kit.gates.reference import Reference
from kit.gates.verdict import GateResult, Judgement, Verdict, fault, not_applicable
from kit.record.store import Room

log = logging.getLogger("kit.gates")
READS: tuple[GateName, ...] = ("hardware", "image", "configuration", "plugin", "graphs")
TALKS: tuple[GateName, ...] = ("tools", "thinking", "arithmetic", "needle")
LAST: tuple[GateName, ...] = ("fast_cores",)
"""Looked at while the others load the engine, judged at the end."""
TALK_AT_ONCE = 2
LOOK_EVERY_S = 2.0
HOST_POOL = "sglang:hicache_host_total_tokens"


@dataclass
class Bench:
    """All that gates need."""

    profile: EngineProfile
    limits: Mapping[GateName, BaseModel]
    engine: Engine
    site: Site
    prompts: Prompts
    reference: Reference | None
    """Of the profile's own numerics class."""
    forced: Reference | None
    """Whose text is fed for agreement."""
    room: Room
    seats: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    slots: tuple[str, ...] | None = None
    """Every slot that must be on, from the image."""
    interfaces: tuple[int | None, int | None] = (None, None)
    """Of the engine and of the plugin, from the image's own check."""
    looks: list[cores.Look] = field(default_factory=list)
    decoded: tuple[greedy.Decoded, ...] | None = None
    """What the greedy gate got: what a reference is made of."""

    @property
    def sizes(self) -> Sizes:
        """The profile's."""
        return self.profile.gates.sizes

    @property
    def model(self) -> str:
        """The name that is asked for."""
        return self.profile.model.served_name


Gate = Callable[[Bench], tuple[BaseModel, Judgement]]


def run(bench: Bench, only: Sequence[GateName] = ()) -> tuple[GateResult, ...]:
    """Every gate of the profile, or ``only`` these. One that the profile cannot do is listed with its reason."""
    gates = bench.profile.gates
    wanted = [name for name in GATES if name in gates.required and (not only or name in only)]
    done: dict[GateName, GateResult] = {
        name: GateResult(name=name, required=False, judgement=not_applicable(reason), seconds=None)
        for name, reason in gates.not_applicable.items()
    }
    watcher = _Watcher(bench)
    with watcher:
        _together(bench, [name for name in wanted if name in READS], len(READS), done)
        for name in wanted:
            if name in ALONE:
                done[name] = _one(bench, name)
        _together(bench, [name for name in wanted if name in TALKS], TALK_AT_ONCE, done)
        for name in wanted:
            if name not in done and name not in LAST:
                done[name] = _one(bench, name)
    for name in wanted:
        if name in LAST:
            done[name] = _one(bench, name)
    return tuple(done[name] for name in GATES if name in done)


def _together(bench: Bench, names: Sequence[GateName], at_once: int, done: dict[GateName, GateResult]) -> None:
    if not names:
        return
    with ThreadPoolExecutor(at_once, thread_name_prefix="gate") as pool:
        for name, result in zip(names, pool.map(lambda name: _one(bench, name), names), strict=True):
            done[name] = result


def _one(bench: Bench, name: GateName) -> GateResult:
    log.info("%s: %s ...", bench.site.name, name)
    began = time.monotonic()
    files: tuple[str, ...] = ()
    with bench.room.stage(f"gate-{name.replace('_', '-')}"):
        try:
            evidence, judgement = HOW[name](bench)
            path = bench.room.put(f"gate-{name.replace('_', '-')}", evidence)
            files = (path.name,)
        except KitError as error:
            # The engine died or hung under this gate: that is a finding about the engine, not about the kit.
            faults = tuple(fault(f"{name}.engine", f.where, f.expected, f.found, f.next) for f in error.failures)
            judgement = Judgement(verdict=Verdict.FAILED, reason=error.failures[0].text(), faults=faults)
    seconds = time.monotonic() - began
    log.info("%s: %s %s in %.1f s: %s", bench.site.name, name, judgement.verdict, seconds, judgement.reason)
    return GateResult(name=name, required=True, judgement=judgement, seconds=round(seconds, 2), evidence=files)


class _Watcher:
    """Looks at the schedulers' cores all the while: a pin must hold under load, and stay."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="cores")
        self._stop = False

    def __enter__(self) -> None:
        if "fast_cores" in self._bench.profile.gates.required:
            self._pool.submit(self._loop)

    def __exit__(self, *_: object) -> None:
        self._stop = True
        self._pool.shutdown()

    def _loop(self) -> None:
        while not self._stop:
            self._bench.looks += self._bench.site.looks() or ()
            time.sleep(LOOK_EVERY_S)


def _limit(bench: Bench, name: GateName, kind: type[Any]) -> Any:
    found = bench.limits[name]
    if not isinstance(found, kind):
        raise TypeError(f"{name} has limits of type {type(found).__name__}")
    return found


def _hardware(bench: Bench) -> tuple[BaseModel, Judgement]:
    evidence = bench.site.hardware() or hardware.Evidence(count=0, sms=0, sm_clock_mhz=0, fabric="", gpus=None, xids=None)
    return evidence, hardware.judge(evidence, _limit(bench, "hardware", hardware.Limits))


def _image(bench: Bench) -> tuple[BaseModel, Judgement]:
    evidence = bench.site.image() or image.Evidence(expected_id="the profile's image", found_id=None, differences=None)
    return evidence, image.judge(evidence, _limit(bench, "image", image.Limits))


def _configuration(bench: Bench) -> tuple[BaseModel, Judgement]:
    answer = bench.engine.json("/server_info")
    resolved = {key: answer[key] for key in configuration.RECORDED if key in answer} if isinstance(answer, dict) else None
    budget = bench.engine.counters().get(HOST_POOL)
    evidence = configuration.Evidence(
        resolved=resolved, models=bench.engine.models(), environment=bench.site.environment(), host_cache_tokens=budget
    )
    limits = _limit(bench, "configuration", configuration.Limits)
    return evidence, configuration.judge(evidence, limits, bench.profile)


def _log_evidence(bench: Bench) -> plugin.Evidence:
    text = bench.site.log()
    if text is None:
        return plugin.Evidence(ranks=None)
    read = enginelog.read(text)
    ranks = {
        rank: plugin.RankEvidence(active=one.active, routed=one.routed, captured=one.captured) for rank, one in read.ranks.items()
    }
    environment = bench.site.environment() or {}
    given = environment.get("SGLANG_NVIDIA_MEGAKERNEL_SLOTS")
    slots = tuple(given.split(",")) if given is not None else bench.slots
    engine, package = bench.interfaces
    return plugin.Evidence(
        ranks=ranks, failures=read.plugin_failures, interface_engine=engine, interface_plugin=package, slots=slots
    )


def _plugin_expected(bench: Bench) -> plugin.Expected:
    mega, graphs = bench.profile.megakernel, bench.profile.graphs
    return plugin.Expected(
        ranks=bench.profile.parallel.tensor,
        graphs=graphs.expected if graphs is not None else 0,
        interface=mega.interface if mega is not None else None,
        slots=bench.slots,
    )


def _plugin(bench: Bench) -> tuple[BaseModel, Judgement]:
    evidence = _log_evidence(bench)
    return evidence, plugin.judge_plugin(evidence, _limit(bench, "plugin", plugin.Limits), _plugin_expected(bench))


def _graphs(bench: Bench) -> tuple[BaseModel, Judgement]:
    evidence, mega = _log_evidence(bench), bench.profile.megakernel is not None
    return evidence, plugin.judge_graphs(evidence, _limit(bench, "graphs", plugin.Limits), _plugin_expected(bench), mega)


def _fast_cores(bench: Bench) -> tuple[BaseModel, Judgement]:
    evidence = cores.Evidence(seats=bench.seats, looks=tuple(bench.looks) or None)
    return evidence, cores.judge(evidence, _limit(bench, "fast_cores", cores.Limits))


def _greedy(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = cast(Batch, bench.sizes.greedy)
    outputs, idle = numeric.decode(bench.engine, bench.prompts, size)
    bench.decoded = outputs
    mine = bench.reference
    evidence = greedy.GreedyEvidence(
        outputs=outputs,
        reference=mine.outputs if mine is not None else None,
        reference_of=mine.title() if mine is not None else "no reference",
        idle=idle,
    )
    return evidence, greedy.judge_greedy(evidence, _limit(bench, "greedy", greedy.GreedyLimits), size.prompts, size.tokens)


def _agreement(bench: Bench) -> tuple[BaseModel, Judgement]:
    theirs = bench.forced
    outputs = theirs.outputs if theirs is not None else ()
    prompts, idle = numeric.forced(bench.engine, bench.prompts, cast(Batch, bench.sizes.agreement), outputs)
    evidence = greedy.AgreementEvidence(prompts=prompts, reference_of=theirs.title() if theirs is not None else None, idle=idle)
    return evidence, greedy.judge_agreement(evidence, _limit(bench, "agreement", greedy.AgreementLimits))


def _kl(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.kl
    assert size is not None
    evidence = numeric.kl_evidence(bench.engine, bench.prompts, size, lambda text: log.info("%s: kl: %s", bench.site.name, text))
    return evidence, kl.judge(evidence, _limit(bench, "kl", kl.Limits), size.repeats)


def _tools(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.tools
    assert size is not None
    cases = tuple(name for name in tools.CASES if name not in size.not_applicable)
    evidence = talking.tool_evidence(bench.engine, bench.model, size.tokens, cases)
    return evidence, tools.judge(evidence, _limit(bench, "tools", tools.Limits), cases)


def _thinking(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.thinking
    assert size is not None
    cases = tuple(name for name in thinking.CASES if name not in size.not_applicable)
    evidence = talking.thinking_evidence(bench.engine, bench.model, size.tokens, cases)
    return evidence, thinking.judge(evidence, _limit(bench, "thinking", thinking.Limits), cases)


def _arithmetic(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.arithmetic
    assert size is not None
    evidence = talking.arithmetic_evidence(bench.engine, bench.model, size)
    return evidence, arithmetic.judge(evidence, _limit(bench, "arithmetic", arithmetic.Limits))


def _cache_restore(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.cache_restore
    assert size is not None
    capacity = (bench.engine.json("/server_info") or {}).get("max_total_num_tokens")
    evidence = numeric.cache_evidence(bench.engine, bench.prompts, size, bench.profile.hicache is not None, capacity)
    return evidence, cache.judge(evidence, _limit(bench, "cache_restore", cache.Limits), size.turns)


def _needle(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.needle
    assert size is not None
    evidence = talking.needle_evidence(bench.engine, bench.model, size)
    return evidence, needle.judge(evidence, _limit(bench, "needle", needle.Limits), size.prompt_tokens)


def _speculation(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.speculation
    assert size is not None
    evidence = talking.speculation_evidence(bench.engine, bench.model, size, bench.profile.speculation is not None)
    return evidence, speculation.judge(evidence, _limit(bench, "speculation", speculation.Limits), size.requests, size.tokens)


def _speed(bench: Bench) -> tuple[BaseModel, Judgement]:
    size = bench.sizes.speed
    assert size is not None
    evidence = numeric.speed_evidence(bench.engine, bench.model, size)
    return evidence, speed.judge(evidence, _limit(bench, "speed", speed.Limits), size.repetitions, size.tokens)


HOW: Mapping[GateName, Gate] = {
    "hardware": _hardware,
    "image": _image,
    "configuration": _configuration,
    "plugin": _plugin,
    "graphs": _graphs,
    "fast_cores": _fast_cores,
    "greedy": _greedy,
    "agreement": _agreement,
    "kl": _kl,
    "tools": _tools,
    "thinking": _thinking,
    "arithmetic": _arithmetic,
    "cache_restore": _cache_restore,
    "needle": _needle,
    "speculation": _speculation,
    "speed": _speed,
}
