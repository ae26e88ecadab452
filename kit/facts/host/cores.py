"""Measures every physical core's speed. Loads the machine, so the host itself refuses when it serves.

The C program comes with the script; without one for this machine, Python counts loops, which gives a ratio, not MHz.
"""

from __future__ import annotations

import base64
import json
import os
import statistics
import subprocess
import sys
import time
import zlib

from kit.facts.host import cpus, services, system
from kit.facts.host.read import Json, Unreadable, fact, is_unknown, kill, unknown

_GRACE_S = 5.0
_WINDOW_S = 0.12
_LOOPS = 12000
"""About 0.6 ms of Python on a current core."""


def why_not(membership: Json) -> str | None:
    """Why this host must not be loaded now; None when it is free. Not knowing is a reason."""
    for name, what in (("joined", "router membership"), ("engine_active", "engine state")):
        value = membership[name]
        if is_unknown(value):
            return f"its {what} is not known: {value['unknown']}"
        if value:
            return "it is joined to a router" if name == "joined" else "its engine runs"
    return None


def places(logical: list[Json]) -> tuple[dict[int, int], list[int]]:
    """(physical core's lowest CPU -> the CPU to run on, cores where nothing can run here)."""
    run_on: dict[int, int] = {}
    heads = set()
    for cpu in logical:
        if cpu["online"] is False:
            continue
        head = cpu["cpu"] if is_unknown(cpu["siblings"]) else cpu["siblings"][0]
        heads.add(head)
        if cpu["usable"]:
            run_on.setdefault(head, cpu["cpu"])
    return run_on, sorted(heads - set(run_on))


def by_program(program: bytes, run_on: list[int], budget_s: float) -> dict[int, tuple[Json, Json]]:
    """CPU -> (MHz alone, MHz loaded), from the C program in memory: nothing is written to a disk."""
    descriptor = os.memfd_create("cores_probe")
    os.write(descriptor, program)
    process = subprocess.Popen(
        ["cores_probe", f"{budget_s:g}", ",".join(map(str, run_on))],
        executable=f"/proc/self/fd/{descriptor}",
        pass_fds=(descriptor,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    os.close(descriptor)
    try:
        out, err = process.communicate(timeout=budget_s + _GRACE_S)
    except subprocess.TimeoutExpired:
        kill(process)
        raise Unreadable(f"the core probe did not end in {budget_s + _GRACE_S:g} s") from None
    if process.returncode != 0:
        raise Unreadable(f"the core probe ended with status {process.returncode}: {err.decode()[-200:]}")
    found: dict[int, tuple[Json, Json]] = {}
    for core in json.loads(out.decode())["cores"]:
        values = []
        for name in ("alone_mhz", "loaded_mhz"):
            values.append(unknown("every burst was interrupted, or time ran out") if core[name] is None else core[name])
        found[core["cpu"]] = (values[0], values[1])
    return found


def by_python(run_on: list[int], budget_s: float) -> dict[int, tuple[Json, Json]]:
    """CPU -> (alone, loaded), 1.0 being the median core alone."""
    deadline = time.monotonic() + budget_s
    alone: dict[int, float | None] = {}
    for cpu in run_on:
        alone.update(_together([cpu]) if time.monotonic() < deadline else {cpu: None})
    loaded = _together(run_on) if time.monotonic() < deadline else {}
    known = [value for value in alone.values() if value]
    if not known:
        raise Unreadable("no core could be measured")
    unit = statistics.median(known)

    def ratio(value: float | None) -> Json:
        return round(value / unit, 4) if value else unknown("time ran out")

    return {cpu: (ratio(alone[cpu]), ratio(loaded.get(cpu))) for cpu in run_on}


def _together(run_on: list[int]) -> dict[int, float | None]:
    """CPU -> loops per second, all CPUs at work at the same time, each in a process of its own."""
    readers: dict[int, int] = {}
    children: list[int] = []
    for cpu in run_on:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.sched_setaffinity(0, {cpu})
                os.write(writer, (f"{_best_rate()!r}").encode())
            finally:
                os._exit(0)
        os.close(writer)
        readers[cpu] = reader
        children.append(child)
    found: dict[int, float | None] = {}
    for cpu, reader in readers.items():
        words = os.read(reader, 64).decode()
        os.close(reader)
        found[cpu] = float(words) if words else None
    for child in children:
        os.waitpid(child, 0)
    return found


def _best_rate() -> float:
    best = float("inf")
    end = time.perf_counter() + _WINDOW_S
    while time.perf_counter() < end:
        began = time.perf_counter()
        value = 1
        for _ in range(_LOOPS):
            value = value ^ 3
        best = min(best, time.perf_counter() - began)
    return _LOOPS / best


def measure(program: bytes | None, logical: list[Json], boot_id: str, budget_s: float) -> Json:
    """``{"measured": ..., "notes": [...]}``: see ``kit.facts.model.MeasuredCores``."""
    run_on, impossible = places(logical)
    notes: list[str] = []
    unit = "mhz"
    found: Json = unknown("no C program for this machine")
    if program is not None:
        found = fact(lambda: by_program(program, sorted(run_on.values()), budget_s))
    if is_unknown(found):
        notes.append(f"{found['unknown']}: core speeds are relative to the median core, not in MHz")
        unit, found = "relative", fact(lambda: by_python(sorted(run_on.values()), budget_s))
    missing = unknown("no process can run on this core here")

    def core(head: int) -> Json:
        if head in impossible:
            alone, loaded = missing, missing
        elif is_unknown(found):
            alone, loaded = found, found
        else:
            alone, loaded = found[run_on[head]]
        return {"core_cpu": head, "alone_mhz": alone, "loaded_mhz": loaded}

    cores = [core(head) for head in sorted(set(run_on) | set(impossible))]
    return {"measured": {"boot_id": boot_id, "unit": unit, "cores": cores}, "notes": notes}


def carried_program(carried: Json) -> bytes | None:
    """The C program that came along, when it is for this machine: ``{"machine", "data"}``, zlib in base64."""
    if carried is None or carried["machine"] != os.uname().machine:
        return None
    return zlib.decompress(base64.b64decode(carried["data"]))


def main() -> int:
    """Entry point on the host; argument: ``{"budget_s"}`` as base64 JSON. The program comes as PROGRAM in the script."""
    request = json.loads(base64.b64decode(sys.argv[1], validate=True))
    states = services.read(services.ALWAYS, fact(lambda: services.show(services.ALWAYS)))
    reason = why_not(services.membership(states))
    if reason:
        sys.stdout.write(json.dumps({"refused": reason}))
        return 0
    program = carried_program(getattr(sys.modules["__main__"], "PROGRAM", None))
    logical = cpus.logical(os.sched_getaffinity(0))
    sys.stdout.write(json.dumps(measure(program, logical, system.boot_id(), float(request["budget_s"]))))
    return 0
