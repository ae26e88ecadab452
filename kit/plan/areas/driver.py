"""Driver and Fabric Manager: versions must match each other and the lock. Who installs them is declared.

``check`` refuses what does not match. ``install`` brings the declared packages to the locked versions (unhold, upgrade,
hold); the loaded kernel module is then replaced by a reboot, a step of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known, show
from kit.plan.model import Action, Step
from kit.plan.steps import change, keep, need, pending, refuse
from kit.plan.where import FABRIC_MANAGER_UNIT
from kit.spec.model import HostSpec, Lock

LOCK_NEXT = "write the version into lock.yml"


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Packages first (only with ``install``), then the versions as they run."""
    packages = _packages(spec, lock, facts)
    return [*packages, *_versions(spec, lock, facts, packages)]


def _packages(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    if spec.gpus.driver.manage == "check":
        return [
            keep(
                "driver.packages",
                "the driver is only checked, not installed (driver.manage is `check`)",
                expected="check",
                found="check",
            )
        ]
    names = spec.gpus.driver.packages
    if not names:
        return [
            refuse(
                "driver.packages",
                "driver.manage is `install` but no package is named",
                expected="package names",
                found="none",
                next="name the packages in gpus.driver.packages, and their versions in lock.yml",
            ),
        ]
    return [
        keep("driver.packages", f"{len(names)} packages are installed by this kit, one step each", found=", ".join(names)),
        *(_package(n, lock, facts) for n in names),
    ]


def _package(name: str, lock: Lock, facts: Facts) -> Step:
    id = f"driver.package.{name}"
    locked = lock.packages.get(name)
    now = facts.packages.get(name, Unknown(unknown="not read"))
    if locked is None:
        return refuse(
            id,
            f"{name} has no version in the lock",
            expected="a version",
            found=show(locked),
            next=f"{LOCK_NEXT}, under packages",
        )
    if is_known(now) and now.version == locked and now.held:
        return keep(id, f"{name} is at the locked version and held", expected=locked, found=now.version)
    held = is_known(now) and now.held
    return change(
        id,
        f"{name} goes to the locked version: unhold, install, hold",
        "driver",
        expected=f"{locked} held",
        found=f"{now.version}{' held' if held else ''}" if is_known(now) else show(now),
        disruptive=True,
        arguments={"packages": [{"name": name, "version": locked}]},
    )


def _versions(spec: HostSpec, lock: Lock, facts: Facts, packages: list[Step]) -> list[Step]:
    stack = facts.gpu
    loaded = stack.driver_version if is_known(stack) else stack
    library = stack.library_version if is_known(stack) else stack
    minimum = spec.gpus.driver.minimum
    found = [
        need(
            "driver.minimum",
            "loaded driver",
            loaded,
            lambda v: version(v) >= version(minimum),
            expected=f"at least {minimum}",
            next="install a newer driver, or declare driver.manage `install`",
        ),
        need(
            "driver.library",
            "driver library",
            library,
            lambda v: is_known(loaded) and v == loaded,
            expected=show(loaded),
            next="`Driver/library version mismatch`: something upgraded one of them; reboot, and hold the packages",
        ),
        _locked("driver.lock", "loaded driver", loaded, lock.driver),
        *_fabric_manager(spec, lock, facts, loaded),
    ]
    if spec.gpus.driver.manage == "check" or any(p.action is Action.REFUSE for p in packages):
        return found
    return [step if step.id in unresolved(lock) else _after_install(step, packages) for step in found]


def unresolved(lock: Lock) -> frozenset[str]:
    """Steps that the lock itself fails: neither packages nor a reboot mend those."""
    versions = {"driver.lock": lock.driver, "fabric_manager.lock": lock.fabric_manager}
    return frozenset(id for id, locked in versions.items() if locked is None)


BEFORE_REBOOT = ("gpu.", "driver.", "fabric_manager.", "burn_in.", "docker.cdi")
"""Areas that cannot be judged, or set, while no GPU answers."""


def after_reboot(spec: HostSpec, lock: Lock, facts: Facts, steps: Sequence[Step]) -> list[Step]:
    """The steps, those that need an answering GPU put off until after the reboot that loads the driver of this plan.

    A bare host has no driver yet, and new libraries do not talk to the module that is still loaded; neither is a fault of
    the hardware. Once GPUs answer, what they say is judged as always.
    """
    packages = [s for s in steps if s.id.startswith("driver.package.")]
    loaded = facts.gpu.driver_version if is_known(facts.gpu) else facts.gpu
    answering = is_known(facts.gpu) and is_known(facts.gpu.gpus) and bool(facts.gpu.gpus)
    ours = spec.gpus.driver.manage == "install" and not any(s.action is Action.REFUSE for s in packages)
    coming = bool(pending(packages)) or not is_known(loaded) or loaded != lock.driver
    if answering or not (ours and packages and coming):
        return list(steps)
    told = {*unresolved(lock), *(s.id for s in packages)}
    return [_put_off(s) if s.id.startswith(BEFORE_REBOOT) and s.id not in told else s for s in steps]


def _put_off(step: Step) -> Step:
    if step.action not in (Action.REFUSE, Action.CHANGE):
        return step
    reason = "no GPU answers before the driver of this plan is loaded by a reboot; judged and set then"
    return Step(id=step.id, action=Action.REBOOT, reason=reason, expected=step.expected, found=step.found, role="reboot")


def _locked(id: str, what: str, fact: str | Unknown, locked: str | None) -> Step:
    if locked is None:
        return refuse(
            id,
            f"the lock has no version for the {what}",
            expected="a version",
            found="null",
            next=f"once nothing else is refused, `invoke fleet.lock` takes the host's, {show(fact)}; or {LOCK_NEXT}",
        )
    return need(
        id,
        what,
        fact,
        lambda v: v == locked,
        expected=locked,
        next="install the locked version, or move the lock after testing the new one",
    )


def _fabric_manager(spec: HostSpec, lock: Lock, facts: Facts, loaded: str | Unknown) -> list[Step]:
    ids = ("fabric_manager.version", "fabric_manager.lock", "fabric_manager.service")
    if not spec.gpus.driver.fabric_manager:
        return [keep(id, "Fabric Manager is declared as not needed", found="not judged") for id in ids]
    stack = facts.gpu
    manager = stack.fabric_manager_version if is_known(stack) else stack
    service = facts.services.get(FABRIC_MANAGER_UNIT)
    active: str | Unknown = service.active if service else Unknown(unknown="not read")
    return [
        need(
            ids[0],
            "Fabric Manager",
            manager,
            lambda v: is_known(loaded) and v == loaded,
            expected=show(loaded),
            next="Fabric Manager must have the driver's exact version: install that one",
        ),
        _locked(ids[1], "Fabric Manager", manager, lock.fabric_manager),
        need(
            ids[2],
            FABRIC_MANAGER_UNIT,
            active,
            lambda v: v == "active",
            expected="active",
            next=f"`systemctl status {FABRIC_MANAGER_UNIT}`; start it only while no GPU client runs",
        ),
    ]


def _after_install(step: Step, packages: list[Step]) -> Step:
    """With ``install``, what does not match is mended by the packages of this plan, then a reboot that loads them."""
    if step.action is not Action.REFUSE:
        return step
    waits = (
        "the packages of this plan and then a reboot"
        if pending(packages)
        else "a reboot: the packages are installed, the old module is still loaded"
    )
    return step.model_copy(
        update={
            "action": Action.REBOOT,
            "role": "reboot",
            "reason": f"{step.reason}; mended by {waits}",
            "disruptive": True,
            "next": "",
        }
    )


def version(text: str) -> tuple[int, ...]:
    """``580.65.06`` -> (580, 65, 6). A part without digits counts as 0."""
    return tuple(int("".join(c for c in part if c.isdigit()) or 0) for part in text.split("."))
