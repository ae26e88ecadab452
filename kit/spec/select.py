"""``--host``: which hosts are meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path

from kit.errors import ExitCode, Failure, KitError, failure
from kit.spec.model import Fleet
from kit.spec.target import Target


def targets(fleets: Sequence[Fleet]) -> dict[str, Target]:
    """Every host of all fleets, by name.

    Raises KitError(USAGE) when two fleets have a host of one name: then ``--host`` would not say which.
    """
    out: dict[str, Target] = {}
    problems: list[Failure] = []
    for fleet in fleets:
        for name, spec in fleet.hosts.items():
            source = Path(fleet.directory) / "hosts" / f"{name}.yml"
            if name in out:
                found = f"{name!r}, also in {out[name].source}"
                problems.append(failure("spec.two_fleets", str(source), "a name of its own", found, "rename one of the two"))
            else:
                out[name] = Target(spec=spec, lock=fleet.lock, fleet=fleet.file, source=source)
    if problems:
        raise KitError(problems, ExitCode.USAGE)
    return out


def groups(fleets: Sequence[Fleet]) -> dict[str, tuple[str, ...]]:
    """Group name -> host names, over all fleets; one group in two fleets is their union."""
    out: dict[str, tuple[str, ...]] = {}
    for fleet in fleets:
        for name, members in fleet.file.groups.items():
            out[name] = tuple(dict.fromkeys((*out.get(name, ()), *members)))
    return out


def select(fleets: Sequence[Fleet], expression: str) -> list[Target]:
    """The hosts of ``a,b,group,all``, each once, in the order named.

    Raises KitError(USAGE) naming every unknown part, and when nothing is selected.
    """
    by_name, by_group = targets(fleets), groups(fleets)
    clash = sorted(set(by_name) & set(by_group))
    if clash:
        problems = [
            failure("spec.group_name", "--host", "a name of its own", f"{name!r} is a host and a group", "rename the group")
            for name in clash
        ]
        raise KitError(problems, ExitCode.USAGE)
    parts = [part.strip() for part in expression.split(",") if part.strip()]
    chosen: dict[str, Target] = {}
    unknown: list[Failure] = []
    for part in parts:
        if part == "all":
            chosen |= {name: target for name, target in by_name.items() if name not in chosen}
        elif part in by_name:
            chosen.setdefault(part, by_name[part])
        elif part in by_group:
            for name in by_group[part]:
                chosen.setdefault(name, by_name[name])
        else:
            unknown.append(_unknown(part, [*by_name, *by_group, "all"]))
    if unknown:
        raise KitError(unknown, ExitCode.USAGE)
    if not chosen:
        found = repr(expression) if not parts else f"{expression!r}, which holds no host"
        names = ", ".join([*by_name, *by_group]) or "none is declared yet"
        raise KitError(
            failure("cli.no_host", "--host", f"a host or group ({names})", found, "name one, or add one with fleet.init"),
            ExitCode.USAGE,
        )
    return list(chosen.values())


def _unknown(part: str, names: Sequence[str]) -> Failure:
    close = difflib.get_close_matches(part, names, n=1)
    step = f"did you mean {close[0]!r}?" if close else "see `invoke fleet.check` for the names there are"
    return failure("cli.unknown_host", "--host", "a host or group: " + ", ".join(names), repr(part), step)
