"""Making steps: the few shapes a decision has. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kit.facts.model import Facts, Gpu
from kit.facts.unknown import Unknown, is_known, show
from kit.plan.model import Action, ManagedFile, Step

T = TypeVar("T")


def keep(id: str, reason: str, *, expected: object = "", found: object = "") -> Step:
    """Nothing to do."""
    return Step(id=id, action=Action.KEEP, reason=reason, expected=show(expected), found=show(found))


def refuse(id: str, reason: str, *, expected: object = "", found: object = "", next: str) -> Step:
    """Software cannot mend it; ``next`` is what a person should do."""
    return Step(id=id, action=Action.REFUSE, reason=reason, expected=show(expected), found=show(found), next=next)


def change(
    id: str,
    reason: str,
    role: str,
    *,
    expected: object = "",
    found: object = "",
    disruptive: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> Step:
    """Ansible's ``role`` will change it."""
    return Step(
        id=id,
        action=Action.CHANGE,
        reason=reason,
        expected=show(expected),
        found=show(found),
        role=role,
        disruptive=disruptive,
        arguments=arguments or {},
    )


def installed(id: str, package: str, facts: Facts, role: str, *, absent: str, look: str, disruptive: bool = False) -> Step:
    """Keep when the Debian package is there, change when it is not, refuse when that could not be read.

    ``absent`` is the reason for the change; ``look`` what a person should do when it could not be read.
    """
    now = facts.packages.get(package, Unknown(unknown="not read"))
    if is_known(now):
        return keep(id, f"{package} is installed", expected="installed", found=now.version)
    if now.unknown != "not installed":
        return refuse(id, f"{package} could not be read", expected="installed", found=now, next=look)
    arguments = {"install": [package]}
    return change(id, absent, role, expected="installed", found="absent", disruptive=disruptive, arguments=arguments)


def need(
    id: str,
    what: str,
    fact: T | Unknown,
    ok: Callable[[T], bool],
    *,
    expected: object,
    next: str,
    found: object | None = None,
) -> Step:
    """Keep when the fact is known and ``ok``; refuse otherwise, an unknown fact as not verified. ``what`` names the thing."""
    shown = show(fact if found is None else found)
    if not is_known(fact):
        return refuse(id, f"{what} could not be read, so it is not verified", expected=expected, found=fact, next=next)
    if not ok(fact):
        return refuse(id, f"{what} is {shown}, declared is {show(expected)}", expected=expected, found=shown, next=next)
    return keep(id, f"{what} is as declared", expected=expected, found=shown)


def silent(id: str, gpus: Unknown, expected: object) -> Step:
    """Refuse what only an answering GPU could tell: the same words for all of it, so that the one cause is seen as one."""
    next = "look at driver.library, `nvidia-smi` and the kernel log on the host: the driver or a GPU does not answer"
    return refuse(id, "no GPU answers, so it is not verified", expected=expected, found=gpus, next=next)


def need_each(
    id: str,
    what: str,
    gpus: Sequence[Gpu],
    read: Callable[[Gpu], T | Unknown],
    ok: Callable[[T], bool],
    *,
    expected: object,
    next: str,
) -> Step:
    """:func:`need` for every GPU; names each one that is wrong or not verified."""
    bad = []
    for gpu in gpus:
        value = read(gpu)
        if not is_known(value) or not ok(value):
            bad.append(f"GPU {gpu.index}: {show(value)}")
    if bad:
        found = "; ".join(bad)
        return refuse(id, f"{what} is not as declared ({found})", expected=expected, found=found, next=next)
    return keep(id, f"{what} is as declared on all {len(gpus)} GPUs", expected=expected, found=expected)


def file_step(
    id: str,
    file: ManagedFile,
    facts: Facts,
    role: str,
    *,
    why: str,
    disruptive: bool = False,
    arguments: Mapping[str, Any] | None = None,
) -> Step:
    """Keep or change one managed file by hash, mode and owner. ``why`` says what the file is for."""
    now = facts.files.get(file.path)
    if now is None:
        return refuse(
            id,
            f"{file.path} was not read, so it is not verified",
            expected=file.sha256[:12],
            next="run the probe of this version of the kit",
        )
    current = now.content if is_known(now.content) else None
    if not now.exists:
        difference, current = "is not there", ""
    elif not is_known(now.sha256):
        return refuse(
            id,
            f"{file.path} could not be read ({now.sha256.unknown})",
            expected=file.sha256[:12],
            next="let the kit read it: sudo without password",
        )
    elif now.sha256 != file.sha256:
        difference = "has other content"
    elif _owner(now.mode, now.owner, now.group) != (file.mode.lstrip("0"), file.owner, file.group):
        difference = "has another mode or owner"
    else:
        return Step(
            id=id,
            action=Action.KEEP,
            reason=f"{file.path} is as declared ({why})",
            expected=file.sha256[:12],
            found=file.sha256[:12],
            file=file,
        )
    found = "absent" if not now.exists else f"{show(now.sha256)[:12]} {show(now.mode)} {show(now.owner)}:{show(now.group)}"
    return Step(
        id=id,
        action=Action.CHANGE,
        reason=f"{file.path} {difference} ({why})",
        expected=f"{file.sha256[:12]} {file.mode} {file.owner}:{file.group}",
        found=found,
        role=role,
        disruptive=disruptive,
        file=file,
        arguments=arguments or {},
        current=current,
    )


def _owner(mode: object, owner: object, group: object) -> tuple[object, object, object]:
    return (str(mode).lstrip("0") if is_known(mode) else mode, owner, group)


def pending(steps: Iterable[Step]) -> bool:
    """Whether any of these would change."""
    return any(s.action in (Action.CHANGE, Action.REBOOT) for s in steps)


def changing(steps: Iterable[Step]) -> str:
    """The ids of those that would change, for a reason text."""
    return ", ".join(s.id for s in steps if s.action in (Action.CHANGE, Action.REBOOT))


def blocked(id: str, unit: str, facts: Facts, *, expected: str, fresh: bool = False) -> Step | None:
    """A refusal where the service manager would not start the unit whatever is applied; None where it would.

    ``fresh``: this plan itself brings the unit's file, so that it is not there, or not understood, yet.
    """
    now = facts.services.get(unit)
    if now is None:
        return refuse(
            id, f"{unit} was not read, so it is not verified", expected=expected, next="run the probe of this version of the kit"
        )
    states = {fact for fact in (now.load, now.enabled) if is_known(fact)}
    if states & {"masked", "masked-runtime"}:
        step = f"`systemctl unmask {unit}` on the host, when nobody needs it stopped"
        return refuse(id, f"{unit} is masked: somebody forbade its start", expected=expected, found="masked", next=step)
    if not fresh and is_known(now.load) and now.load in ("not-found", "bad-setting", "error"):
        step = f"`systemctl status {unit}` on the host; a package's unit comes back with `apt-get install --reinstall`"
        return refuse(id, f"{unit} cannot be loaded ({now.load})", expected=expected, found=now.load, next=step)
    return None


def unit_step(
    id: str,
    unit: str,
    facts: Facts,
    role: str,
    files: Sequence[Step],
    *,
    why: str,
    disruptive: bool = False,
) -> Step:
    """A boot unit of ours: enabled, active, ended well, and started from the files as they now are.

    Its file steps are looked at because a unit that ran with the old file proves nothing about the new one.
    """
    if (refusal := blocked(id, unit, facts, expected="active, enabled", fresh=pending(files))) is not None:
        return refusal
    now = facts.services[unit]
    arguments = {"units_restart": [unit]}
    reloads = any(s.action is Action.CHANGE and s.disruptive for s in files)
    if pending(files):
        return change(
            id,
            f"{unit} must start again because of {changing(files)}",
            role,
            expected="active, enabled, from the new files",
            found=f"{show(now.active)}, {show(now.enabled)}",
            disruptive=disruptive or reloads,
            arguments=arguments,
        )
    wrong = []
    if not (is_known(now.active) and now.active == "active"):
        wrong.append(f"is {show(now.active)}")
    if not (is_known(now.enabled) and now.enabled == "enabled"):
        wrong.append(f"is {show(now.enabled)} at boot")
    stale = is_known(now.needs_daemon_reload) and now.needs_daemon_reload
    if stale:
        wrong.append("runs from an older unit file")
    if wrong:
        return change(
            id,
            f"{unit} {', '.join(wrong)} ({why})",
            role,
            expected="active, enabled",
            found=f"{show(now.active)}, {show(now.enabled)}",
            disruptive=disruptive or stale,
            arguments=arguments,
        )
    return keep(id, f"{unit} is enabled and ended well ({why})", expected="active, enabled", found=f"{now.active}, {now.enabled}")
