"""Plan to role variables: pure, and all that a plain ``ansible-playbook ... -e @apply.json`` needs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kit.plan.model import Action, Plan, Step

ROLES = ("node", "memory", "cpu", "gpu", "container_engine", "firewall", "driver", "packages", "reboot")
"""In the order in which they run. The driver comes after all that talks to GPUs: its new libraries do not, before a reboot."""
FILE_KEYS = {"path", "content", "mode", "owner", "group", "check_with"}


_PLAIN = re.compile(r"[A-Za-z0-9 ._/@:+,=~%-]*")
"""Text that no template engine could read as anything but itself."""


def role_variables(plan: Plan, reboot: bool = False) -> dict[str, Any]:
    """What the playbook is given. A plan with a refusal gives no role at all.

    ``b300kit_plan``: host, boot id, digest, ids of the steps. ``b300kit_roles``: the roles to run, in order. For each
    role, ``<role>_files`` and the joined lists of its steps' arguments as ``<role>_<argument>``.
    """
    wanted = (Action.CHANGE, Action.REBOOT) if reboot else (Action.CHANGE,)
    steps = [] if plan.refused else [s for s in plan.steps if s.action in wanted and s.role]
    variables: dict[str, Any] = {
        "b300kit_plan": {"host": plan.host, "boot_id": plan.boot_id, "digest": plan.digest(), "steps": [s.id for s in steps]},
        "b300kit_roles": [role for role in ROLES if any(s.role == role for s in steps)],
    }
    for role in variables["b300kit_roles"]:
        mine = [s for s in steps if s.role == role]
        variables |= {f"{role}_{name}": value for name, value in _joined(mine).items()}
    return {name: _untemplated(value) for name, value in variables.items()}


def _untemplated(value: Any) -> Any:
    """The same value, its text marked so that Ansible never takes it for a template.

    Some of it comes from the host (its daemon.json, its boot id): a ``{{ lookup('pipe', ...) }}`` in there would run on the
    control machine.
    """
    if isinstance(value, str):
        return value if _PLAIN.fullmatch(value) else {"__ansible_unsafe": value}
    if isinstance(value, Mapping):
        return {key: _untemplated(item) for key, item in value.items()}
    return [_untemplated(item) for item in value] if isinstance(value, list | tuple) else value


def _joined(steps: list[Step]) -> dict[str, Any]:
    """Files and arguments of one role's steps; a value that two steps ask for comes once."""
    joined: dict[str, Any] = {}
    files = [s.file for s in steps if s.file is not None]
    if files:
        joined["files"] = [f.model_dump(include=FILE_KEYS, exclude_none=True) for f in files]
    if any(s.file is not None and s.disruptive for s in steps):
        # Only files of the service manager are marked so: it must read them again.
        joined["daemon_reload"] = True
    for step in steps:
        _merge(joined, step.arguments)
    return joined


def _merge(joined: dict[str, Any], arguments: Mapping[str, Any]) -> None:
    """Lists are joined; a flag that one step sets is set."""
    for name, value in arguments.items():
        if isinstance(value, bool):
            joined[name] = joined.get(name, False) or value
        else:
            known = joined.setdefault(name, [])
            known += [item for item in value if item not in known]
