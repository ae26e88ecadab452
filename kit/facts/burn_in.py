"""What a burn-in says: three facts for the plan, each with its reason where it is not known. Pure."""

from __future__ import annotations

from kit.facts.burn_in_model import AllReduce, Figure, GpuMemory, Link, MeasuredBurnIn
from kit.facts.model import BurnIn, Facts
from kit.facts.unknown import Unknown, is_known

LEAST_TESTED = 0.8
"""Share of a GPU's memory that must have been tested: much less means that somebody else held the rest."""
MEASURE = "invoke probe --burn-in"


def not_measured(reason: str) -> BurnIn:
    """No burn-in to go by."""
    why = Unknown(unknown=reason)
    return BurnIn(nccl_all_reduce_gbps=why, nvlink_gbps=why, hbm_ok=why, measured=why)


def with_burn_in(facts: Facts, run: MeasuredBurnIn | None) -> Facts:
    """The same facts with an earlier burn-in, when it is of this boot, driver and GPUs."""
    return facts.model_copy(update={"burn_in": _applying(facts, run)})


def _applying(facts: Facts, run: MeasuredBurnIn | None) -> BurnIn:
    if not is_known(facts.gpu):
        return not_measured(facts.gpu.unknown)
    if run is None or run.boot_id != facts.host.boot_id:
        return not_measured(f"not measured in this boot; `{MEASURE}` does")
    now, then = facts.gpu.driver_version, run.driver_version
    if not (is_known(now) and is_known(then) and now == then):
        return not_measured(f"measured with driver {then}, now it is {now}; `{MEASURE}` again")
    if not is_known(facts.gpu.gpus):
        return not_measured(f"which GPUs there are is not known: {facts.gpu.gpus.unknown}")
    uuids = tuple(gpu.uuid for gpu in facts.gpu.gpus)
    if uuids != run.uuids:  # an Unknown equals nothing
        return not_measured(f"measured on other GPUs; `{MEASURE}` again")
    return judged(run)


def judged(run: MeasuredBurnIn) -> BurnIn:
    """The facts that a burn-in gives."""
    return BurnIn(
        nccl_all_reduce_gbps=_all_reduce(run.all_reduce, len(run.uuids)),
        nvlink_gbps=_nvlink(run.links, len(run.uuids)),
        hbm_ok=_hbm(run.memory, len(run.uuids)),
        measured=run,
    )


def _all_reduce(found: AllReduce | Unknown, gpus: int) -> float | Unknown:
    if not is_known(found):
        return found
    if sum_faults(found):
        return Unknown(unknown="; ".join(sum_faults(found)))
    if found.gpus != gpus:
        return Unknown(unknown=f"measured over {found.gpus} of {gpus} GPUs")
    return found.bus.gbps if is_known(found.bus) else found.bus


def _nvlink(links: tuple[Link, ...] | Unknown, gpus: int) -> float | Unknown:
    if not is_known(links):
        return links
    if link_faults(links):
        return Unknown(unknown="; ".join(link_faults(links)))
    if len({frozenset(link.gpus) for link in links}) != gpus * (gpus - 1) // 2:
        return Unknown(unknown=f"{len(links)} pairs measured of {gpus} GPUs")
    figures = [figure for link in links for figure in (link.there, link.back)]
    unknown = [figure for figure in figures if not is_known(figure)]
    if unknown or not figures:
        return unknown[0] if unknown else Unknown(unknown="one GPU: no pair")
    return min(figure.gbps for figure in figures if is_known(figure))


def _hbm(memory: tuple[GpuMemory, ...] | Unknown, gpus: int) -> bool | Unknown:
    """A fault that was seen is a fault, whatever else is not known."""
    if not is_known(memory):
        return memory
    if any(memory_faults(memory)):
        return False
    doubts = [f"GPU {one.index}: {doubt}" for one in memory for doubt in _doubts(one)]
    if len(memory) != gpus:
        doubts.append(f"{len(memory)} of {gpus} GPUs checked")
    return Unknown(unknown="; ".join(doubts)) if doubts else True


def memory_faults(memory: tuple[GpuMemory, ...] | Unknown) -> list[str]:
    """Each fault of HBM that the burn-in saw, in words."""
    found = []
    for one in memory if is_known(memory) else ():
        if is_known(one.check) and one.check.wrong_words:
            found.append(f"GPU {one.index}: {one.check.wrong_words} wrong words, the first at byte {one.check.first_wrong_byte}")
        if is_known(one.ecc_before) and is_known(one.ecc_after) and one.ecc_after > one.ecc_before:
            found.append(f"GPU {one.index}: {one.ecc_after - one.ecc_before} uncorrected ECC errors during the check")
    return found


def link_faults(links: tuple[Link, ...] | Unknown) -> list[str]:
    """Each pair of GPUs whose copies arrived damaged, in words."""
    known = links if is_known(links) else ()
    return [f"GPUs {x.gpus[0]} and {x.gpus[1]}: {x.wrong_words} words arrived wrong" for x in known if x.wrong_words]


def sum_faults(found: AllReduce | Unknown) -> list[str]:
    """Whether the all-reduce gave a wrong sum, in words."""
    return [f"the sum is wrong in {found.wrong_words} words"] if is_known(found) and found.wrong_words else []


def _doubts(one: GpuMemory) -> list[str]:
    if not is_known(one.check):
        return [one.check.unknown]
    found = []
    if not one.check.tested_mib >= LEAST_TESTED * one.check.total_mib:
        found.append(f"only {one.check.tested_mib} of {one.check.total_mib} MiB could be tested")
    for when, count in (("before", one.ecc_before), ("after", one.ecc_after)):
        if not is_known(count):
            found.append(f"ECC errors {when} it: {count.unknown}")
    return found


def slowest_link(run: MeasuredBurnIn) -> str:
    """``GPUs 0 and 3``; empty where nothing was measured."""
    if not is_known(run.links):
        return ""
    rates = [(f.gbps, link.gpus) for link in run.links for f in (link.there, link.back) if isinstance(f, Figure)]
    return f"GPUs {min(rates)[1][0]} and {min(rates)[1][1]}" if rates else ""
