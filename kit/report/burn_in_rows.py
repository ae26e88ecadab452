"""The burn-in for people: the figures, how old they are, and the conditions they were taken under. Pure."""

from __future__ import annotations

from datetime import datetime

from kit.facts.burn_in import memory_faults, slowest_link
from kit.facts.burn_in_model import Figure, MeasuredBurnIn
from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known
from kit.report.clean import one_line
from kit.report.row import Area, Row, row
from kit.spec.model import HostSpec


def area(facts: Facts, spec: HostSpec | None) -> Area:
    """Rows of what is judged, and of what the burn-in saw besides."""
    want, found = spec.burn_in if spec else None, facts.burn_in

    def floor(value: object) -> str:
        return "" if value is None else "absent" if value == "absent" else f"at least {value} GB/s"

    rows = [
        row("NCCL all-reduce", found.nccl_all_reduce_gbps, floor(want and want.nccl_all_reduce_gbps), lambda v: f"{v:g} GB/s"),
        row("NVLink, slowest pair", found.nvlink_gbps, floor(want and want.nvlink_gbps), lambda v: f"{v:g} GB/s"),
        row("HBM check", found.hbm_ok, want.hbm if want else "", lambda v: "passed" if v else "failed"),
    ]
    if is_known(found.measured):
        rows += _seen(found.measured, facts.collected_at)
    return Area(
        "Burn-in",
        (*rows, row("Clock synchronized", facts.host.clock_synchronized, want.clock_synchronized if want else "")),
    )


def age(then: str, now: str) -> str:
    """``2 h 5 min before``, from two moments of one host's clock; empty when they are not moments, or in the wrong order."""
    try:
        seconds = (datetime.fromisoformat(now) - datetime.fromisoformat(then)).total_seconds()
    except (ValueError, TypeError):
        return ""
    if not seconds >= 0:
        return ""
    minutes = int(seconds // 60)
    days, hours = minutes // 1440, minutes // 60 % 24
    if days:
        return f"{days} d {hours} h before"
    return f"{hours} h {minutes % 60} min before" if hours else f"{minutes} min before"


def _seen(run: MeasuredBurnIn, now: str) -> list[Row]:
    before = age(run.measured_at, now)
    rows = [Row("Measured", one_line(f"{run.measured_at}{f', {before}' if before else ''}, in {run.seconds:g} s"))]
    if is_known(run.memory):
        rows += [Row("HBM fault", one_line(fault)) for fault in memory_faults(run.memory)]
        checks = [one.check for one in run.memory if is_known(one.check)]
        tested = [f"{check.tested_mib // 1024} of {check.total_mib // 1024} GiB" for check in checks]
        rows.append(Row("HBM tested", one_line(", ".join(dict.fromkeys(tested)) or "nothing")))
        rows.append(Row("HBM copy, slowest GPU", _lowest([check.copied for check in checks])))
    if is_known(run.links):
        rows.append(Row("Slowest pair", one_line(slowest_link(run) or "none")))
        rows.append(Row("Both ways at once, slowest pair", _lowest([link.both for link in run.links])))
        rows.append(Row("Pairs without peer access", str(sum(not link.peer_access for link in run.links))))
    if is_known(run.all_reduce):
        settings = " ".join(f"{name}={value}" for name, value in run.all_reduce.settings.items())
        rows.append(Row("NCCL", one_line(f"{run.all_reduce.version}, {run.all_reduce.gpus} GPUs {settings}".strip())))
    return rows


def _lowest(figures: list[Figure | Unknown]) -> str:
    """The lowest median with its own extremes."""
    known = [figure for figure in figures if is_known(figure)]
    if not known or len(known) != len(figures):
        return "not verified"
    low = min(known, key=lambda figure: figure.gbps)
    return f"{low.gbps:g} GB/s ({low.lowest_gbps:g} to {low.highest_gbps:g} in {low.repeats} runs)"
