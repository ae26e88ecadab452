"""``sim.*``: what the simulator tells, as an outcome."""

from __future__ import annotations

import logging
from typing import get_args

from kit.cli.command import usage
from kit.errors import Failure
from kit.outcome import Outcome
from kit.sim import flow
from kit.sim.leftovers import told
from kit.sim.model import Runtime, SimHost
from kit.sim.places import Places
from kit.sim.requirements import missing

log = logging.getLogger("kit.sim")
_RUNTIMES: tuple[Runtime, ...] = get_args(Runtime)


def requirements() -> dict[str, list[Failure]]:
    """What each runtime misses on this machine."""
    return {runtime: missing(runtime) for runtime in _RUNTIMES}


def up(name: str, profile: str, runtime: str) -> Outcome:
    """Boot one and say how to reach it."""
    kind = next((known for known in _RUNTIMES if known == runtime), None)
    if kind is None:
        raise usage("cli.bad_value", "invoke sim.up --runtime", " or ".join(_RUNTIMES), repr(runtime), "use one of these")
    host = flow.up(name, profile, runtime=kind, progress=log.info)
    done = f"booted in {host.seconds:.1f} s" if host.created else "was up already"
    text = f"{_line(host)}\n{name} {done}; use it with --host {name}\nlog in: {host.login}"
    return Outcome("sim.up", result={"host": host}, text=text)


def down(name: str, everything: bool) -> Outcome:
    """Take one away, or all."""
    if bool(name) == everything:
        found = "both" if name else "neither"
        raise usage("cli.missing_option", "invoke sim.down", "--name or --all", found, "give one of the two")
    removed = flow.down(name or None, progress=log.info)
    if name and not removed:
        there = ", ".join(host.name for host in flow.status()) or "none"
        step = "give one of these" if there != "none" else "invoke sim.up makes one"
        raise usage("sim.no_such_host", "invoke sim.down --name", f"one of: {there}", repr(name), step)
    text = "\n".join(f"{one.name} is gone" for one in removed) or "nothing was up"
    return Outcome("sim.down", result={"removed": removed}, text=text)


def status() -> Outcome:
    """Those that are up."""
    hosts = flow.status()
    text = "\n".join(_line(host) for host in hosts) or "no simulated host is up; see `invoke --help sim.up`"
    lost = [line for line in told(Places.here().cache) if not hosts and not line.startswith("at work")]
    if lost:
        text = "\n".join(["no host is known here, but this is left: invoke sim.down --all", *lost])
    return Outcome("sim.status", result={"simulated": hosts}, text=text)


def _line(host: SimHost) -> str:
    state = "answers" if host.answers else "runs, no ssh yet" if host.running else "stopped"
    return f"{host.name:20} {host.profile:18} {host.runtime:7} {host.address}:{host.port:<6} {state}"
