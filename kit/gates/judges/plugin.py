"""plugin and graphs: what each rank's log says about the megakernel. A plugin that fails is logged and skipped by SGLang, and the
engine serves at the old speed; so silence fails here."""

from __future__ import annotations

from collections.abc import Mapping

from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, Judgement, fault, judged


class RankEvidence(Frozen):
    """One rank. None: its log has no such line."""

    active: str | None
    routed: int | None
    captured: int | None


class Evidence(Frozen):
    """Of one start of the engine."""

    ranks: Mapping[int, RankEvidence] | None
    """None: the log could not be read."""
    failures: tuple[str, ...] = ()
    """Plugins that failed and were skipped."""
    interface_engine: int | None = None
    """The version through which this SGLang calls a plugin."""
    interface_plugin: int | None = None
    slots: tuple[str, ...] | None = None
    """In force in the running process: the variable, or the plugin's defaults where it is unset."""


class Expected(Frozen):
    """From the profile and the image."""

    ranks: int
    graphs: int
    interface: int | None
    slots: tuple[str, ...] | None
    """Every slot that must be on; None: the image does not say."""


class Limits(Frozen):
    """Nothing to set: all or not."""


def judge_plugin(evidence: Evidence, limits: Limits, expected: Expected) -> Judgement:
    """Active on every rank, one interface, no slot missing."""
    wrong = [
        fault("plugin.failed", "log", "every plugin loaded", line[:200], "the engine went on without it: see the log above it")
        for line in evidence.failures
    ]
    unknown: list[Fault] = []
    if evidence.ranks is None:
        unknown.append(fault("plugin.unknown", "log", "a line of each rank", "could not be read"))
    ranks = evidence.ranks or {}
    for rank in range(expected.ranks) if evidence.ranks is not None else ():
        one = ranks.get(rank)
        if one is None or one.active is None:
            step = "it runs stock kernels: see why above `ready to roll` in its log"
            wrong.append(fault("plugin.inactive", f"rank {rank}", "NVIDIA megakernel: active", "no such line", step))
    for name, found in (("engine", evidence.interface_engine), ("plugin", evidence.interface_plugin)):
        if expected.interface is None:
            continue
        if found is None:
            unknown.append(fault("plugin.unknown", f"interface of the {name}", expected.interface, "could not be read"))
        elif found != expected.interface:
            step = "the two must call each other through one version: neither says so by itself, and stock code serves"
            wrong.append(fault("plugin.interface", f"interface of the {name}", expected.interface, found, step))
    if expected.slots is None or evidence.slots is None:
        what = "the image" if expected.slots is None else "the process"
        unknown.append(fault("plugin.unknown", "slots", "the list of slots", f"{what} does not say"))
    else:
        missing = [slot for slot in expected.slots if slot not in evidence.slots]
        if missing:
            found_text = f"{len(evidence.slots)} on; missing {', '.join(missing[:5])}" + (" and more" if len(missing) > 5 else "")
            step = "a list replaces the defaults: leave the variable unset, the kit composes it"
            wrong.append(fault("plugin.slots", "slots", f"all {len(expected.slots)}", found_text, step))
    return judged(
        wrong, unknown, f"active on all {expected.ranks} ranks", {"ranks": expected.ranks, "slots": len(evidence.slots or ())}
    )


def judge_graphs(evidence: Evidence, limits: Limits, expected: Expected, megakernel: bool) -> Judgement:
    """N of M on every rank, M as many as the profile expects. Without the megakernel, M alone."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    want = f"{expected.graphs} of {expected.graphs}"
    if evidence.ranks is None:
        unknown.append(fault("graphs.unknown", "log", want, "could not be read"))
    seen: list[int] = []
    ranks = evidence.ranks or {}
    for rank in range(expected.ranks) if evidence.ranks is not None else ():
        one = ranks.get(rank)
        where = f"rank {rank}"
        if one is None or one.captured is None:
            step = "no decode graph runs: every step is launched one kernel at a time"
            wrong.append(fault("graphs.none", where, want, "no line about captured graphs", step))
            continue
        routed = one.routed if megakernel else one.captured
        seen.append(routed or 0)
        if routed != expected.graphs or one.captured != expected.graphs:
            step = "some batch sizes run stock code: see the plugin's reasons in the log"
            wrong.append(fault("graphs.count", where, want, f"{routed} of {one.captured}", step))
    return judged(wrong, unknown, f"{want} on all {expected.ranks} ranks", {"graphs_min": min(seen, default=None)})
