"""A host that serves is not disturbed: each disruptive step becomes a refusal.

Disruptive is, for one, every daemon-reload: it detaches GPUs from running containers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.facts.model import Facts
from kit.facts.unknown import is_known, show
from kit.plan.model import Action, Step
from kit.plan.where import ENGINE_UNIT_FILE


def serving(facts: Facts) -> str | None:
    """Why the host must be taken to serve; None when it does not. Not knowing counts as serving where an engine is set up."""
    member = facts.membership
    if is_known(member.joined) and member.joined:
        return "the host is joined to a router"
    if is_known(member.engine_active) and member.engine_active:
        return "its engine runs"
    engine = facts.files.get(ENGINE_UNIT_FILE)
    if engine is None or engine.exists:
        for what, fact in (("router membership", member.joined), ("engine state", member.engine_active)):
            if not is_known(fact):
                return f"its {what} is {show(fact)} and an engine is set up"
    return None


def guarded(host: str, facts: Facts, steps: Sequence[Step]) -> list[Step]:
    """The same steps, the disruptive ones refused where the host serves."""
    why = serving(facts)
    if why is None:
        return list(steps)
    return [
        _refused(step, why, host) if step.disruptive and step.action in (Action.CHANGE, Action.REBOOT) else step for step in steps
    ]


def _refused(step: Step, why: str, host: str) -> Step:
    return step.model_copy(
        update={
            "action": Action.REFUSE,
            "reason": f"{step.reason}; this would disturb serving, and {why}",
            "next": f"invoke leave --host {host}",
        }
    )
