"""Simulated hosts, and the demo on them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.command import command

if TYPE_CHECKING:
    from kit.outcome import Outcome


_PROFILES = sorted(path.stem for path in (Path(__file__).parent.parent / "sim/profiles").glob("*.yml"))


@command(help={"keep": "Leave the simulated hosts running, to look around."})
def demo(keep: bool = False) -> Outcome:
    """The whole flow on two simulated hosts."""
    from kit import demo as show

    return show.run(keep)


@command(
    help={
        "name": "What to call it; --host takes it at once.",
        "profile": f"Which hardware, healthy or faulty: {', '.join(_PROFILES)}.",
        "runtime": "nspawn (seconds) or qemu (for cpusets, limits, huge pages, NUMA).",
    }
)
def sim_up(name: str, profile: str = "b300-4", runtime: str = "nspawn") -> Outcome:
    """Boot a simulated host."""
    from kit.cli import simulated

    return simulated.up(name, profile, runtime)


@command(help={"name": "Which one.", "all": "All of them."})
def sim_down(name: str = "", all: bool = False) -> Outcome:
    """Take simulated hosts away, whole."""
    from kit.cli import simulated

    return simulated.down(name, all)


@command()
def sim_status() -> Outcome:
    """Which simulated hosts are up?"""
    from kit.cli import simulated

    return simulated.status()
