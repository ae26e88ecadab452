"""Intel Speed Select through ``intel-speed-select``: whether Priority Core Turbo is there, on, and for which CPUs."""

from __future__ import annotations

import re

from kit.facts.host.read import Json, Unreadable, fact, find_program, is_unknown, run, unknown

_AT_ONCE = 64
"""Older versions of the tool take no more CPUs in one request."""
_TIMEOUT_S = 10.0

Leaf = tuple[tuple[str, ...], str, str]
"""Headings above it, name, value."""


def leaves(words: str) -> list[Leaf]:
    """The tool's indented text as (headings, name, value)."""
    stack: list[tuple[int, str]] = []
    found: list[Leaf] = []
    for line in words.splitlines():
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if not stripped or indent == 0:
            stack = []
            continue
        while stack and stack[-1][0] >= indent:
            stack.pop()
        name, colon, value = stripped.partition(":")
        if colon:
            found.append((tuple(heading for _, heading in stack), name, value.strip()))
        else:
            stack.append((indent, stripped))
    return found


def call(*arguments: str) -> list[Leaf]:
    """Run the tool and read what it says. It prints its answer on stderr unless told otherwise."""
    status, out, err = run(["intel-speed-select", *arguments], _TIMEOUT_S)
    found = leaves(out + "\n" + err)
    if not found:
        words = " ".join((out + " " + err).split())[-160:]
        raise Unreadable(f"intel-speed-select {' '.join(arguments[-3:])}: status {status}: {words}")
    return found


def states(found: list[Leaf], level: int) -> dict[str, list[str]]:
    """State words of SST-TF and SST-CP at one performance level, over all packages and power domains."""
    wanted = f"perf-profile-level-{level}"
    chosen: dict[str, list[str]] = {"speed-select-turbo-freq": [], "speed-select-core-power": []}
    for headings, name, value in found:
        if name in chosen and wanted in headings:
            chosen[name].append(value)
    return chosen


def top_bucket(found: list[Leaf]) -> tuple[int, int]:
    """(cores per package, MHz) of the highest turbo bucket.

    The table is printed for each power domain of a package with the package's numbers; so the largest is taken, never a sum.
    """
    by_bucket: dict[tuple[str, ...], dict[str, int]] = {}
    for headings, name, value in found:
        if headings and re.match(r"^bucket-\d+$", headings[-1]) and value.isdigit():
            by_bucket.setdefault(headings, {})[name] = int(value)
    best = (0, 0)
    for values in by_bucket.values():
        mhz, cores = values.get("high-priority-max-frequency(MHz)", 0), values.get("high-priority-cores-count", 0)
        if mhz and cores:
            best = max(best, (mhz, cores))
    if best == (0, 0):
        raise Unreadable("intel-speed-select lists no turbo-freq bucket")
    return best[1], best[0]


def clos0(found: list[Leaf]) -> list[int]:
    """CPUs that ``core-power get-assoc`` puts into CLOS 0."""
    cpus: list[int] = []
    for headings, name, value in found:
        cpu = next((h for h in headings if re.match(r"^cpu-\d+$", h)), None)
        if name == "clos" and value == "0" and cpu:
            cpus.append(int(cpu[4:]))
    return sorted(set(cpus))


def read(cpus: list[Json]) -> Json:
    """The ``cpu.priority`` part of the facts. ``cpus``: entries of :func:`kit.facts.host.cpus.logical`."""
    names = ("supported", "enabled", "priority_cpus", "bucket_cores", "bucket_mhz")
    if find_program("intel-speed-select") is None:
        return {"tool": False, **{name: unknown("intel-speed-select is not installed") for name in names}}

    def current() -> int:
        for _, name, value in call("perf-profile", "get-config-current-level"):
            if name.replace("_", "-") == "get-config-current-level" and value.isdigit():
                return int(value)
        raise Unreadable("intel-speed-select names no current level")

    level = fact(current)
    if is_unknown(level):
        return {"tool": True, **dict.fromkeys(names, level)}
    found = fact(lambda: states(call("perf-profile", "info", "-l", str(level)), level))
    bucket = fact(lambda: top_bucket(call("turbo-freq", "info", "-l", str(level))))

    def every(allowed: tuple[str, ...]) -> bool:
        if is_unknown(found):
            raise Unreadable(found["unknown"])
        if not all(found.values()):
            raise Unreadable(f"intel-speed-select says nothing about turbo-freq and core-power at level {level}")
        return all(word in allowed for words in found.values() for word in words)

    enabled = fact(lambda: every(("enabled",)))

    def priority() -> list[int]:
        if enabled is not True:
            raise Unreadable("core power is off: the association means nothing")
        known = [cpu["siblings"] for cpu in cpus if not is_unknown(cpu["siblings"])]
        heads = sorted({siblings[0] for siblings in known})
        siblings_of = {siblings[0]: siblings for siblings in known}
        chosen: list[int] = []
        for start in range(0, len(heads), _AT_ONCE):
            listing = ",".join(map(str, heads[start : start + _AT_ONCE]))
            chosen += clos0(call("-c", listing, "core-power", "get-assoc"))
        return sorted({cpu for head in chosen for cpu in siblings_of.get(head, [head])})

    return {
        "tool": True,
        "supported": fact(lambda: every(("enabled", "disabled"))),
        "enabled": enabled,
        "priority_cpus": fact(priority),
        "bucket_cores": bucket if is_unknown(bucket) else bucket[0],
        "bucket_mhz": bucket if is_unknown(bucket) else bucket[1],
    }
