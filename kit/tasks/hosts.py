"""Commands on hosts and their specs: from a proposal to a verified node."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.command import command

if TYPE_CHECKING:
    from kit.outcome import Outcome
    from kit.spec.target import Target

_VERBOSE = "Show also what stays as it is."


@command()
def doctor() -> Outcome:
    """Is this control machine ready, and what is missing?"""
    from kit import doctor as machine
    from kit.cli import simulated

    return machine.examine(simulated.requirements())


@command(
    help={
        "host": "USER@ADDRESS[:PORT] of a live host.",
        "name": "Its name; the host's own otherwise.",
        "accept_host_key": "SHA256:... after you compared it with the host's own.",
        "identity_file": "Private key; the ssh agent's otherwise.",
        "write": "Put the spec into the fleet folder; never overwrites.",
    }
)
def fleet_init(host: str, name: str = "", accept_host_key: str = "", identity_file: str = "", write: bool = False) -> Outcome:
    """Propose a spec from a live host's facts; --write keeps it."""
    from kit.spec import init

    return init.propose_host(host, name, accept_host_key, identity_file, write)


@command()
def fleet_check() -> Outcome:
    """Are all specs valid? Every failure, with file and line."""
    from kit import paths
    from kit.spec import commands

    return commands.check(paths.fleet_dirs())


@command(hosts=True, help={"check": "Only compare; exit 3 when something would move."})
def fleet_lock(targets: list[Target], check: bool = False) -> Outcome:
    """Take an accepted host's versions into lock.yml."""
    from kit.spec import relock

    return relock.lock_from(targets, check)


@command(help={"check": "Only compare; exit 3 when one is stale."})
def fleet_schema(check: bool = False) -> Outcome:
    """Write the JSON Schemas that editors use."""
    from kit.spec import commands

    return commands.write_schemas(commands.schema_folder(), check)


@command(
    hosts=True,
    help={
        "measure_cores": "Also measure each core's speed: loads the machine for a while.",
        "burn_in": "Also check HBM, links and NCCL: loads idle GPUs for a while.",
        "verbose": "Show also packages, services, files and kernel settings.",
    },
)
def probe(targets: list[Target], measure_cores: bool = False, burn_in: bool = False, verbose: bool = False) -> Outcome:
    """Facts of hosts, read-only."""
    from kit import flow

    return flow.probe(targets, measure_cores, burn_in, verbose)


@command(hosts=True, help={"verbose": _VERBOSE})
def plan(targets: list[Target], verbose: bool = False) -> Outcome:
    """The dry run, as a diff; exit 3 when something would change."""
    from kit import flow

    return flow.plan(targets, verbose)


@command(
    hosts=True,
    help={
        "check": "Only plan.",
        "reboot": "Reboot hosts where a step needs it.",
        "verbose": _VERBOSE,
    },
)
def provision(targets: list[Target], check: bool = False, reboot: bool = False, verbose: bool = False) -> Outcome:
    """Make hosts what their specs say: plan, apply, verify."""
    from kit import flow

    return flow.provision(targets, check, reboot, verbose)


@command(hosts=True, help={"textfile": "Write metrics here, for the node exporter's textfile collector.", "verbose": _VERBOSE})
def drift(targets: list[Target], textfile: str = "", verbose: bool = False) -> Outcome:
    """Like plan, for cron: has a host moved from its spec?"""
    from kit import flow

    return flow.drift(targets, Path(textfile) if textfile else None, verbose)


@command(hosts=True, help={"junit": "Write the results here as JUnit XML.", "verbose": _VERBOSE})
def verify(targets: list[Target], junit: str = "", verbose: bool = False) -> Outcome:
    """Check hosts from inside and outside; changes nothing."""
    from kit import flow

    return flow.verify(targets, Path(junit) if junit else None, verbose)
