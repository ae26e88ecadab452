"""systemd units, in one call."""

from __future__ import annotations

import json
from collections.abc import Sequence

from kit.facts.host.read import Json, Unreadable, fact, is_unknown, output, run, text, unknown

DOCKER = "docker.service"
ENGINE = "b300kit-engine.service"
IRQBALANCE = "irqbalance.service"
ALWAYS = (DOCKER, ENGINE, IRQBALANCE)
MARKER = "/var/lib/b300kit/membership.json"

_PROPERTIES = (
    "LoadState",
    "ActiveState",
    "NeedDaemonReload",
    "Result",
    "ActiveEnterTimestampMonotonic",
    "MainPID",
)


def show(units: Sequence[str]) -> dict[str, dict[str, str]]:
    """Unit -> property -> text. systemd answers in the order asked, one block a unit.

    UnitFileState is the state on disk: the manager's own word for it is as old as its last daemon-reload, so that a unit
    enabled without one would read "disabled" until the next boot.
    """
    answer = output(["systemctl", "show", "--no-pager", "-p", ",".join(_PROPERTIES), "--", *list(units)], 10)
    blocks = [block for block in answer.strip().split("\n\n") if block]
    if len(blocks) != len(units):
        raise Unreadable(f"systemctl answered for {len(blocks)} of {len(units)} units")
    found: dict[str, dict[str, str]] = {}
    for unit, block in zip(units, blocks):
        pairs = (line.partition("=") for line in block.splitlines())
        found[unit] = {name: value for name, _, value in pairs}
    states = at_boot(units)
    return {unit: {**values, "UnitFileState": states.get(unit, "")} for unit, values in found.items()}


def at_boot(units: Sequence[str]) -> dict[str, str]:
    """Unit -> enabled, disabled, masked, ..., as its links on disk say; a unit without a file is left out."""
    command = ["systemctl", "list-unit-files", "--no-legend", "--no-pager", "--", *units]
    status, answer, said = run(command, 10)
    # Status 1 with nothing said is its word for "none of them has a file".
    if status != 0 and (status != 1 or said.strip()):
        raise Unreadable(f"systemctl list-unit-files ended with status {status}: {' '.join(said.split())[:200]}")
    return {words[0]: words[1] for words in map(str.split, answer.splitlines()) if len(words) > 1}


def read(units: Sequence[str], shown: Json) -> dict[str, Json]:
    """The ``services`` part. ``shown``: from :func:`show`."""
    return {unit: _one(shown if is_unknown(shown) else shown[unit]) for unit in units}


def _one(values: Json) -> Json:
    def word(name: str) -> Json:
        if is_unknown(values):
            return values
        found = values.get(name, "")
        return found if found else unknown(f"systemctl gives no {name}")

    def since() -> float:
        micro = int(values["ActiveEnterTimestampMonotonic"])
        if micro == 0:
            raise Unreadable("never active in this boot")
        return micro / 1e6

    reload = word("NeedDaemonReload")
    return {
        "load": word("LoadState"),
        "active": word("ActiveState"),
        "enabled": word("UnitFileState"),
        "needs_daemon_reload": reload if is_unknown(reload) else reload == "yes",
        "result": word("Result"),
        "since_boot_s": values if is_unknown(values) else fact(since),
    }


def main_pid(shown: Json, unit: str) -> int:
    """PID of a unit's main process, 0 when it has none or cannot be told."""
    return 0 if is_unknown(shown) else int(shown.get(unit, {}).get("MainPID", "0") or "0")


def membership(services: dict[str, Json]) -> Json:
    """The ``membership`` part: the marker that joining leaves, and whether the engine runs.

    A marker that cannot be read is Unknown, never "not joined".
    """

    def marker() -> str:
        try:
            return text(MARKER)
        except FileNotFoundError:
            return ""

    found = fact(marker)

    def joined() -> bool:
        if is_unknown(found):
            raise Unreadable(found["unknown"])
        return bool(found) and json.loads(found)["state"] != "left"

    active = services[ENGINE]["active"]
    running = active if is_unknown(active) else active in ("active", "activating", "reloading", "deactivating")
    return {"joined": fact(joined), "marker": found, "engine_active": running}
