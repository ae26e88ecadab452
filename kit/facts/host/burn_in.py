"""The burn-in: loads every GPU for a while to find out what an operator must know before trusting a node.

Three children do the work, one after another, each with its own time limit: memory, links, NCCL. One that hangs is killed
and costs only its own figures. Refused when the host serves, when any GPU has work, and where that cannot be told.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from functools import partial

from kit.facts.host import burn_nccl, gpu, services, system
from kit.facts.host.child import Child
from kit.facts.host.cores import why_not
from kit.facts.host.read import Json, fact, is_unknown, kill, unknown

_POLL_S = 0.2
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def reasons_against(membership: Json, gpus: Json) -> list[str]:
    """Every reason why these GPUs must not be loaded now. Not knowing is a reason. Pure."""
    serves = why_not(membership)
    found = [serves] if serves else []
    if is_unknown(gpus):
        return [*found, f"its GPUs cannot be read: {gpus['unknown']}"]
    for one in gpus:
        who, processes, mig = f"GPU {one['index']}", one["_processes"], one["mig_current"]
        if is_unknown(processes):
            found.append(f"{who}: whether it has work is not known: {processes['unknown']}")
        elif processes:
            found.append(f"{who} has work: process {', '.join(map(str, processes))}")
        if mig is True:
            found.append(f"{who}: MIG is on, so only a part of it would be tested")
    return found if gpus else [*found, "NVML lists no GPU"]


def with_ecc(memory: Json, before: Json, after: Json) -> Json:
    """The memory check of each GPU that NVML lists, in its order, with its ECC counter around the burn-in. Pure."""
    if is_unknown(memory):
        return memory
    by_bus = {gpu.short_bus_id(bus_id): check for bus_id, check in memory.items()}
    later = {} if is_unknown(after) else {one["index"]: one["ecc_uncorrected"] for one in after}
    gone = unknown(f"NVML: {after['unknown']}" if is_unknown(after) else "the GPU was not listed any more")
    found = []
    for one in before:
        bus = fact(partial(gpu.short_bus_id, one["pci_bus_id"]))
        check = unknown(str(bus)) if is_unknown(bus) else by_bus.get(bus, unknown("CUDA does not see this GPU"))
        counts = {"ecc_before": one["ecc_uncorrected"], "ecc_after": later.get(one["index"], gone)}
        found.append({"index": one["index"], "check": check, **counts})
    return found


def _with_indices(links: Json, gpus: Json) -> Json:
    """PCI addresses become NVML's indices. Pure."""
    if is_unknown(links):
        return links
    index = {gpu.short_bus_id(one["pci_bus_id"]): one["index"] for one in gpus if not is_unknown(one["pci_bus_id"])}
    return [{**figures, "gpus": [index[gpu.short_bus_id(bus)] for bus in buses]} for buses, figures in links]


def _run(entry: str, timeout_s: float, arguments: Sequence[str] = ()) -> Json:
    """One child's answer, its steps passed on to our standard error as they come."""
    settings = {name: value for name, value in os.environ.items() if name.startswith(burn_nccl.SETTINGS)}
    child = Child(entry, timeout_s, arguments, settings)
    previous = {number: signal.signal(number, lambda number, frame: _stop(child, number)) for number in _SIGNALS}
    try:
        shown = 0
        while child.process.poll() is None and time.monotonic() < child.deadline:
            shown = _tell(child, shown)
            time.sleep(_POLL_S)
        _tell(child, shown)
        return fact(child.result)
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _stop(child: Child, number: int) -> None:
    kill(child.process)
    sys.exit(128 + number)


def _tell(child: Child, shown: int) -> int:
    steps = child.steps()
    for step in steps[shown:]:
        sys.stderr.write(step + "\n")
    sys.stderr.flush()
    return len(steps)


def _nvml(timeout_s: float) -> Json:
    found = fact(Child("nvml", timeout_s).result)
    return found if is_unknown(found) else found["gpus"]


def measure(nccl_library: str, timeout_s: float) -> Json:
    """``measured`` (see ``kit.facts.burn_in_model``) or ``refused`` with every reason. ``timeout_s``: for each child."""
    if not gpu.present():
        return {"refused": ["no NVIDIA driver or library on this host"]}
    began, when = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    states = services.read(services.ALWAYS, fact(lambda: services.show(services.ALWAYS)))
    before = _nvml(timeout_s)
    refused = reasons_against(services.membership(states), before)
    if refused:
        return {"refused": refused}
    memory = _run("burn_memory", timeout_s)
    links = _run("burn_links", timeout_s)
    all_reduce = _run("burn_nccl", timeout_s, [nccl_library])
    return {
        "measured": {
            "boot_id": system.boot_id(),
            "driver_version": fact(gpu.driver_version),
            "uuids": [one["uuid"] for one in before],
            "measured_at": when,
            "seconds": round(time.monotonic() - began, 1),
            "memory": fact(lambda: with_ecc(memory, before, _nvml(timeout_s))),
            "links": fact(lambda: _with_indices(links, before)),
            "all_reduce": all_reduce,
        }
    }


def main() -> int:
    """Entry point on the host; argument, as base64 JSON: ``nccl_library`` (a file, or null), ``timeout_s``."""
    request = json.loads(base64.b64decode(sys.argv[1], validate=True))
    found = measure(request.get("nccl_library") or burn_nccl.LIBRARY, float(request["timeout_s"]))
    sys.stdout.write(json.dumps(found))
    return 0
