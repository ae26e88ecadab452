"""Reboots are steps: shown with their reason, done only when asked for, never into a kernel without the driver."""

from __future__ import annotations

from collections.abc import Sequence

from kit.facts.model import Facts
from kit.facts.unknown import is_known, show
from kit.plan.model import Action, Step
from kit.plan.steps import keep, refuse
from kit.spec.model import HostSpec, Lock

ROLE = "reboot"


def steps(spec: HostSpec, lock: Lock, facts: Facts, before: Sequence[Step]) -> list[Step]:
    """``before``: the steps so far; a reboot that one of them needs is the same single reboot."""
    reasons = [s.id for s in before if s.action is Action.REBOOT]
    installed = spec.gpus.driver.manage == "install" and any(s.role == "driver" for s in before if s.action is Action.CHANGE)
    asked = facts.host.reboot_required
    if installed:
        reasons.append("the driver packages of this plan")
    # Somebody else's pending reboot (a library upgrade) is theirs to schedule; with `install` the upgrade was ours.
    if spec.gpus.driver.manage == "install" and is_known(asked) and asked:
        reasons.append("/run/reboot-required on the host")
    return [_next_kernel(facts, bool(reasons)), _host(facts, reasons)]


def _next_kernel(facts: Facts, reboots: bool) -> Step:
    """A kernel that apt installed without headers has no driver module: the node would come back without GPUs."""
    id, state, kernel = "reboot.next_kernel", facts.host.next_kernel_dkms, facts.host.next_kernel
    expected = "driver module built for the next kernel, or not built by DKMS"
    found = f"{show(kernel)}: {show(state)}"
    if is_known(state) and state in ("installed", "not_used"):
        return keep(id, f"the next boot's kernel {show(kernel)} has its driver module ({state})", expected=expected, found=found)
    if reboots:
        return refuse(
            id,
            f"a reboot would start kernel {show(kernel)}, whose driver module is {show(state)}",
            expected=expected,
            found=found,
            next=f"install the headers of {show(kernel)} and run `dkms autoinstall -k {show(kernel)}`, or remove that kernel",
        )
    return keep(
        id,
        f"WARNING: the next boot would start kernel {show(kernel)}, whose driver module is {show(state)}",
        expected=expected,
        found=found,
    )


def _host(facts: Facts, reasons: list[str]) -> Step:
    id = "reboot.host"
    if not reasons:
        asked = facts.host.reboot_required
        note = "; the host has a reboot pending from elsewhere" if is_known(asked) and asked else ""
        return keep(id, f"nothing of this plan needs a reboot{note}", expected="none", found="none")
    return Step(
        id=id,
        action=Action.REBOOT,
        reason=f"needed by {', '.join(reasons)}; proven by another boot id than {facts.host.boot_id}",
        expected="a new boot id",
        found=facts.host.boot_id,
        role=ROLE,
        disruptive=True,
    )
