"""Templates to files. Values only: a template never decides anything, and a missing value is an error."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from kit.plan.model import ManagedFile
from kit.plan.where import unit_file


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("kit.plan", "templates"),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,  # noqa: S701  configuration files, not HTML; the spec's types admit no control characters
    )


def text(template: str, **values: Any) -> str:
    """The rendered template; jinja2.UndefinedError when a value is missing."""
    return _environment().get_template(template).render(**values)


def file(path: str, template: str, mode: str = "0644", **values: Any) -> ManagedFile:
    """A managed file from a template."""
    return ManagedFile(path=path, content=text(template, **values), mode=mode)


def unit(name: str, template: str, **values: Any) -> ManagedFile:
    """A systemd unit of ours from a template."""
    return file(unit_file(name), template, **values)


def settings(path: str, values: Any) -> ManagedFile:
    """A JSON settings file read by one of our scripts on the host."""
    return ManagedFile(path=path, content=json.dumps(values, indent=2, sort_keys=True) + "\n")


_OURS = "from kit."
_FUTURE = "from __future__ import annotations\n"
_HEADER = "#!/usr/bin/python3\n# Written by b300kit. Run by a boot unit; standard library only.\n"


@cache
def _script(name: str) -> str:
    """``common`` and one module as one file: a host has no package of ours."""
    folder = resources.files("kit.plan").joinpath("onhost")
    parts = [folder.joinpath(part).read_text(encoding="utf-8").replace(_FUTURE, "") for part in ("common.py", name)]
    lines = [line for part in parts for line in part.splitlines() if not line.startswith(_OURS)]
    return _HEADER + _FUTURE + "\n".join(lines) + "\n"


def script(path: str, name: str) -> ManagedFile:
    """One of our host scripts (``kit/plan/onhost``), complete in one file."""
    return ManagedFile(path=path, content=_script(name), mode="0755")


def cpu_list(cpus: Iterable[int]) -> str:
    """Kernel list format, ``0-3,8``; empty for none."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in ranges)


def cpu_mask(cpus: Iterable[int]) -> str:
    """Kernel mask format: 32-bit hexadecimal groups, most significant first."""
    value = sum(1 << cpu for cpu in set(cpus))
    groups = []
    while True:
        groups.append(f"{value & 0xFFFFFFFF:08x}")
        value >>= 32
        if not value:
            return ",".join(reversed(groups))
