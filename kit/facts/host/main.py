"""The probe: reads everything that was asked for, side by side where that saves time, and prints one JSON document."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

from kit.facts.host import cpus, gpu, memory, network, packages, services, speed_select, system
from kit.facts.host.read import Json, fact, is_unknown, unknown

SCHEMA_VERSION = 1


def request_from(argument: str) -> dict[str, Any]:
    """The request: JSON in base64, so that no shell on the way can read it differently."""
    document: dict[str, Any] = json.loads(base64.b64decode(argument, validate=True))
    return document


def read(request: dict[str, Any]) -> Json:
    """All facts. ``request``: see ``kit.facts.request``."""
    began = time.monotonic()
    usable = os.sched_getaffinity(0)
    children = gpu.start(float(request["nvml_timeout_s"]))
    units = sorted(set(request["services"]) | set(services.ALWAYS))
    with ThreadPoolExecutor(max_workers=8) as pool:

        def later(reader: Callable[[], Json]) -> Future[Json]:
            return pool.submit(fact, reader)

        shown = later(lambda: services.show(units))
        every = later(packages.installed)
        offered = later(lambda: packages.candidates(request["packages"]))
        log = later(gpu.xids) if children else None
        table = later(network.firewall)
        host = later(lambda: system.read(".".join(map(str, sys.version_info[:3]))))
        ram = later(memory.read)
        shown_now = shown.result()
        states = services.read(units, shown_now)
        engine = later(lambda: network.docker(states))
        membership = services.membership(states)
        logical = cpus.logical(usable)
        priority = later(lambda: speed_select.read(logical))
        nodes = {cpu["cpu"]: cpu["node"] for cpu in logical if not is_unknown(cpu["node"])}
        boot_id = system.boot_id()
        return {
            "schema_version": SCHEMA_VERSION,
            "collected_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "host": host.result(),
            "cpu": cpus.read(logical, states, priority.result(), boot_id),
            "memory": ram.result(),
            "limits": _limits(shown_now),
            "disks": [memory.disk(path) for path in request["disks"]],
            "packages": packages.read(request["packages"], every.result(), offered.result()),
            "services": {unit: states[unit] for unit in request["services"]},
            "sysctls": {name: fact(partial(system.sysctl, name)) for name in request["sysctls"]},
            "files": {path: system.file(path) for path in request["files"]},
            "users": {name: fact(partial(system.user, name)) for name in request["users"]},
            "gpu": gpu.read(children, every.result(), boot_id, nodes, log.result() if log else unknown("no GPU stack")),
            "burn_in": {
                name: unknown("not measured by a read-only probe") for name in ("nccl_all_reduce_gbps", "nvlink_gbps", "hbm_ok")
            },
            "docker": engine.result(),
            "firewall": table.result(),
            "membership": membership,
            "notes": [] if os.geteuid() == 0 else ["not run as root: much is unknown"],
            "privileged": os.geteuid() == 0,
            "seconds": round(time.monotonic() - began, 3),
        }


def _limits(shown: Json) -> Json:
    """Containers get their limits from the engine's daemon; without one, from PID 1 as every service does."""
    pid = fact(lambda: services.main_pid(shown, services.DOCKER))
    if isinstance(pid, int) and pid > 0:
        return memory.limits(services.DOCKER, pid)
    return memory.limits("PID 1", 1)


def main() -> int:
    """Entry point on the host."""
    sys.stdout.write(json.dumps(read(request_from(sys.argv[1]))))
    sys.stdout.flush()
    # A thread may still wait for a tool that hangs in the kernel; its answer is not wanted any more.
    os._exit(0)
