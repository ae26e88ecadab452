"""The service user and the folders that the kit and the engine use."""

from __future__ import annotations

from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known, show
from kit.plan.model import Action, Step
from kit.plan.steps import change, keep, refuse
from kit.spec.model import HostSpec, Lock

ROLE = "node"
DIRECTORY_MODE = "0750"


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """User, then the data folder that it owns."""
    user = _user(spec, facts)
    return [user, _directory(spec, facts, user.action is Action.CHANGE)]


def _user(spec: HostSpec, facts: Facts) -> Step:
    name = spec.service_user
    now = facts.users.get(name, Unknown(unknown="not read"))
    arguments = {"users": [{"name": name, "home": spec.data_dir}]}
    if not is_known(now):
        if now.unknown != "no such user":
            return refuse(
                "node.user",
                f"user {name} could not be read ({now.unknown})",
                expected=name,
                next="look at `getent passwd` on the host",
            )
        return change(
            "node.user",
            f"user {name} is not there; a system user without login is made",
            ROLE,
            expected=name,
            found=show(now),
            arguments=arguments,
        )
    uid = now.split(":", 1)[0]
    if uid == "0":
        return refuse(
            "node.user", f"{name} is root", expected="a user without privileges", found=now, next="declare another service_user"
        )
    return keep("node.user", f"user {name} is there", expected=name, found=now)


def _directory(spec: HostSpec, facts: Facts, new_user: bool) -> Step:
    path, owner = spec.data_dir, spec.service_user
    now = facts.files.get(path)
    expected = f"{DIRECTORY_MODE} {owner}:{owner}"
    if now is None:
        return refuse(
            "node.data_dir",
            f"{path} was not read, so it is not verified",
            expected=expected,
            next="run the probe of this version of the kit",
        )
    found = f"{show(now.mode)} {show(now.owner)}:{show(now.group)}" if now.exists else "absent"
    if (
        now.exists
        and not new_user
        and is_known(now.mode)
        and (now.mode.lstrip("0"), now.owner, now.group) == (DIRECTORY_MODE.lstrip("0"), owner, owner)
    ):
        return keep("node.data_dir", f"{path} belongs to {owner}", expected=expected, found=found)
    return change(
        "node.data_dir",
        f"{path} {'has another owner or mode' if now.exists else 'is not there'}",
        ROLE,
        expected=expected,
        found=found,
        arguments={"directories": [{"path": path, "mode": DIRECTORY_MODE, "owner": owner, "group": owner}]},
    )
