"""``sim.up``, ``sim.down``, ``sim.status``: what the command line calls. Becomes root through sudo for the parts that need it."""

from __future__ import annotations

from kit.sim import elevate, engine, states
from kit.sim.model import Progress, Removed, Runtime, SimHost
from kit.sim.places import Places


def _silent(_line: str) -> None:
    return None


def up(name: str, profile: str = "b300-4", *, runtime: Runtime = "nspawn", progress: Progress = _silent) -> SimHost:
    """Boot a simulated host, or find it running; afterwards its name works with ``--host``.

    `progress` gets one line for each thing that starts. Raises KitError: USAGE for a bad name, an unknown profile,
    a missing package or a host that runs with another profile; TIMEOUT when it does not boot; INTERNAL otherwise.
    """
    return elevate.up(Places.here(), name, profile, runtime, progress)


def down(name: str | None = None, *, progress: Progress = _silent) -> list[Removed]:
    """Take one host away, or all when `name` is None. Nothing of it is left; the cached layers stay."""
    return elevate.down(Places.here(), name, progress)


def status() -> list[SimHost]:
    """Every host that was brought up and not taken down, by name. Needs no privilege."""
    places = Places.here()
    return [engine.describe(places, state) for state in states.read_all(places)]
