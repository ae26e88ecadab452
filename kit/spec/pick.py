"""``--host`` against the fleet folders in use. An edge: finds and reads them."""

from __future__ import annotations

from kit import paths
from kit.spec.load import load_fleets
from kit.spec.select import select
from kit.spec.target import Target


def pick(expression: str) -> list[Target]:
    """The hosts meant by ``--host``. Raises KitError(USAGE) with every failure of every spec, or the unknown names."""
    return select(load_fleets(paths.fleet_dirs()), expression)
