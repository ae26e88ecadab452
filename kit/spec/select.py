"""``--host``: which hosts are meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
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
    return choose(fleets, expression, ())[0]


def choose(fleets: Sequence[Fleet], expression: str, broken: Collection[str]) -> tuple[list[Target], list[str]]:
    """As :func:`select`, and apart from them the chosen ones of ``broken``: hosts there are, whose files cannot be used.

    Raises KitError(USAGE) as :func:`select` does.
    """
    by_group = groups(fleets)
    by_name = {name: target for name, target in targets(fleets).items() if name not in broken}
    names = [*by_name, *broken]
    clash = sorted(set(names) & set(by_group))
    if clash:
        problems = [
            failure("spec.group_name", "--host", "a name of its own", f"{name!r} is a host and a group", "rename the group")
            for name in clash
        ]
        raise KitError(problems, ExitCode.USAGE)
    parts = [part.strip() for part in expression.split(",") if part.strip()]
    chosen: list[str] = []
    unknown: list[Failure] = []
    for part in parts:
        if part == "all":
            chosen += names
        elif part in names:
            chosen.append(part)
        elif part in by_group:
            chosen += by_group[part]
        else:
            unknown.append(_unknown(part, [*names, *by_group, "all"]))
    if unknown:
        raise KitError(unknown, ExitCode.USAGE)
    if not chosen:
        found = repr(expression) if not parts else f"{expression!r}, which holds no host"
        known = ", ".join([*names, *by_group]) or "none is declared yet"
        raise KitError(
            failure("cli.no_host", "--host", f"a host or group ({known})", found, "name one, or add one with fleet.init"),
            ExitCode.USAGE,
        )
    once = list(dict.fromkeys(chosen))
    return [by_name[name] for name in once if name in by_name], [name for name in once if name not in by_name]


def _unknown(part: str, names: Sequence[str]) -> Failure:
    close = difflib.get_close_matches(part, names, n=1)
    step = f"did you mean {close[0]!r}?" if close else "see `invoke fleet.check` for the names there are"
    return failure("cli.unknown_host", "--host", "a host or group: " + ", ".join(names), repr(part), step)
