"""Debian packages: versions, holds, what apt would install."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kit.facts.host.read import Json, is_unknown, output, unknown

_NOBODY = 65534
_FORMAT = "${Package}\\t${Version}\\t${db:Status-Want}\\t${db:Status-Status}\\n"


def installed() -> dict[str, Json]:
    """Every installed package: name -> {"version", "held"}. One call; the same name on two architectures counts once."""
    found: dict[str, Json] = {}
    for line in output(["dpkg-query", "-W", "-f", _FORMAT], 10).splitlines():
        name, version, want, status = line.split("\t")
        if status == "installed":
            found[name] = {"version": version, "held": want == "hold"}
    return found


def candidates(names: Sequence[str]) -> dict[str, str]:
    """Name -> version apt would install. Run as nobody: as root, apt would rewrite its cache when that is out of date."""
    if not names:
        return {}
    found: dict[str, str] = {}
    name = ""
    for line in output(["apt-cache", "policy", "--", *names], 20, user=_NOBODY).splitlines():
        if line and not line.startswith(" "):
            name = line.rstrip(":")
        match = re.match(r"^\s+Candidate: (\S+)", line)
        if match and match.group(1) != "(none)":
            found[name] = match.group(1)
    return found


def read(names: Sequence[str], every: Json, offered: Json) -> Json:
    """The ``packages`` part: one entry an asked name. ``every``: from :func:`installed`; ``offered``: :func:`candidates`."""
    found: dict[str, Json] = {}
    for name in names:
        if is_unknown(every):
            found[name] = every
        elif name not in every:
            found[name] = unknown("not installed")
        else:
            candidate = offered if is_unknown(offered) else offered.get(name, unknown("apt has no candidate"))
            found[name] = dict(every[name], candidate=candidate)
    return found


def matching(every: Json, pattern: str) -> list[str]:
    """Versions of the installed packages whose names match."""
    return [] if is_unknown(every) else [every[name]["version"] for name in sorted(every) if re.match(pattern, name)]


def upstream(version: str) -> str:
    """A Debian version without epoch and revision: ``1:580.65.06-1`` is 580.65.06."""
    return re.sub(r"^\d+:", "", version).rsplit("-", 1)[0]
