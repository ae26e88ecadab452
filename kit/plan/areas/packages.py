"""Packages whose version must not move: apt holds, and unattended-upgrades told to leave them alone."""

from __future__ import annotations

import re

from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import render
from kit.plan.model import Step
from kit.plan.steps import change, file_step, keep, refuse
from kit.plan.where import BLACKLIST
from kit.spec.model import HostSpec, Lock

ROLE = "packages"


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """One step a held package, then the blacklist file. The blacklist has no daemon: each upgrade run reads it anew."""
    held = [_hold(name, spec, lock, facts) for name in spec.packages.hold if name not in _managed_elsewhere(spec)]
    patterns = [f"^{re.escape(name)}$".replace("\\-", "-") for name in sorted({*spec.packages.hold, *_managed_elsewhere(spec)})]
    file = render.file(BLACKLIST, "unattended-upgrades.j2", patterns=patterns)
    return [*held, file_step("packages.blacklist", file, facts, ROLE, why="unattended-upgrades leaves the held packages alone")]


def _managed_elsewhere(spec: HostSpec) -> tuple[str, ...]:
    """Held by the role that installs them: a hold set before an upgrade would block it."""
    return spec.gpus.driver.packages if spec.gpus.driver.manage == "install" else ()


def _hold(name: str, spec: HostSpec, lock: Lock, facts: Facts) -> Step:
    id = f"packages.hold.{name}"
    now = facts.packages.get(name, Unknown(unknown="not read"))
    locked = lock.packages.get(name)
    if not is_known(now):
        if name == spec.docker.package and now.unknown == "not installed":
            return change(
                id,
                f"{name} is installed by this plan and then held",
                ROLE,
                expected="held",
                found=show(now),
                arguments={"hold": [name]},
            )
        return refuse(
            id,
            f"{name} is to be held but is not on the host ({now.unknown})",
            expected="installed, held",
            found=show(now),
            next="install it from the host's own apt source, or take it out of packages.hold",
        )
    if locked is not None and now.version != locked:
        return refuse(
            id,
            f"{name} is {now.version}, the lock says {locked}",
            expected=locked,
            found=now.version,
            next="install the locked version (apt-mark unhold, apt install, hold), or move the lock after testing the new one",
        )
    if now.held:
        return keep(id, f"{name} {now.version} is held", expected="held", found="held")
    return change(
        id,
        f"{name} {now.version} is not held: an upgrade could move it under a running engine",
        ROLE,
        expected="held",
        found="not held",
        arguments={"hold": [name]},
    )
