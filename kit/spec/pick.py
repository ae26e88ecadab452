"""``--host`` against the fleet folders in use. An edge: finds and reads them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from kit import paths
from kit.errors import ExitCode, Failure, KitError
from kit.outcome import HostOutcome, Outcome
from kit.spec.load import load_usable
from kit.spec.select import choose
from kit.spec.target import Target

log = logging.getLogger("kit.spec.pick")

Broken = Mapping[str, tuple[Failure, ...]]
"""Host -> why its declaration cannot be used."""


def pick(expression: str) -> list[Target]:
    """The hosts meant by ``--host``, each with a valid declaration.

    Raises KitError(USAGE) with every failure of those that have none, of what concerns all hosts, or the unknown names.
    """
    targets, broken = _choose(expression)
    if broken:
        raise KitError(_all(broken), ExitCode.USAGE)
    return targets


def on_hosts(expression: str, do: Callable[[list[Target]], Outcome]) -> Outcome:
    """What ``do`` makes of the hosts meant by ``--host``; those whose declaration cannot be used end with exit 2 beside them.

    Raises KitError(USAGE) when no host is left to work on, and what ``do`` raises.
    """
    targets, broken = _choose(expression)
    if not targets:
        raise KitError(_all(broken), ExitCode.USAGE)
    try:
        outcome = do(targets)
    except KitError as error:
        raise KitError([*_all(broken), *error.failures], error.exit_code) from error
    ends = {name: HostOutcome(ExitCode.USAGE, {}, why) for name, why in broken.items()}
    return replace(outcome, hosts={**outcome.hosts, **ends})


def _choose(expression: str) -> tuple[list[Target], Broken]:
    """The hosts that are meant: those to work on, and those that cannot be used. Warns about others that cannot."""
    readings = load_usable(paths.fleet_dirs())
    broken = {name: why for reading in readings for name, why in reading.broken.items()}
    targets, chosen = choose([reading.fleet for reading in readings], expression, broken)
    others = [name for name in broken if name not in chosen]
    if others:
        log.warning("not usable, and not meant here: %s; `invoke fleet.check` tells why", ", ".join(others))
    return targets, {name: broken[name] for name in chosen}


def _all(broken: Broken) -> list[Failure]:
    return list(dict.fromkeys(failure for why in broken.values() for failure in why))
