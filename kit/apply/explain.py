"""What Ansible said, as a failure with a next step. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kit.errors import Failure, failure

LONGEST = 600
"""Characters of a module's message that are kept."""

# What an operator can do about what a module says; the first that fits.
KNOWN: tuple[tuple[str, str, str, str], ...] = (
    (r"plan is stale or of another host", "apply.stale", "the plan's host and boot", "make a new plan: run the command again"),
    (
        r"No space left on device|Disk quota exceeded|not enough free space",
        "apply.disk_full",
        "free space on the host",
        "free space there and run again",
    ),
    (
        r"[Ff]ailed to lock apt|Could not get lock|frontend lock|dpkg.*lock was locked|locked by another process",
        "apply.apt_locked",
        "no other package manager at work",
        "wait for the other one to end (`fuser -v /var/lib/dpkg/lock-frontend`), then run again",
    ),
    (
        r"Read-only file system",
        "apply.read_only",
        "a writable file system",
        "look at the host's kernel log: a file system turned read-only",
    ),
    (
        r"[Uu]nit \S+ is masked",
        "apply.unit_masked",
        "a unit that may start",
        "`systemctl unmask UNIT` on the host, when nobody needs it stopped; then run again",
    ),
    (
        r"did not (start|restart|reload)",
        "apply.unit",
        "the unit starts",
        "the unit's own words are in `found`; `journalctl -u UNIT` on the host has more",
    ),
    (
        r"failed to validate",
        "apply.invalid_file",
        "a file that its own program accepts",
        "this is a fault of this kit: keep the record and report it",
    ),
    (r"sudo|become|privilege", "apply.sudo", "sudo without a password", "look at the sudoers entry of the login user"),
)


def message(result: Mapping[str, Any]) -> str:
    """The useful words of a module's result."""
    parts = []
    for key in ("msg", "stderr", "module_stderr", "stdout"):
        value = result.get(key)
        text = " ".join(str(value).split()) if value else ""
        if text and text not in parts:
            parts.append(text)
    return ": ".join(parts)[:LONGEST] or "no message"


def failed(host: str, role: str, task: str, said: str) -> Failure:
    """A task failed on a host."""
    where = f"{host}: {role}: {task}" if role else f"{host}: {task}"
    for pattern, code, expected, next in KNOWN:
        if re.search(pattern, said):
            return failure(code, where, expected, said, next)
    return failure(
        "apply.task", where, "the task succeeds", said, "mend what it says and run again: a second run finishes the rest"
    )


def no_room(said: str) -> bool:
    """Whether words are about a full disk."""
    return bool(re.search(r"No space left on device|Disk quota exceeded", said))


def record_full(host: str, said: str) -> Failure:
    """Ansible itself ended for want of room beside the record, on the control machine."""
    return failure(
        "record.write",
        f"{host}: Ansible's files in the record",
        "free space on the control machine",
        said,
        "free space on that file system or set B300KIT_RUNS to another folder, then run again: it goes on where this ended",
    )


def unreachable(host: str, role: str, task: str, said: str) -> Failure:
    """The connection broke in the middle."""
    where = f"{host}: {role}: {task}" if role else f"{host}: {task}"
    return failure(
        "apply.unreachable",
        where,
        "a connection to the host",
        said,
        "see that the host answers, then run again: what is done stays done",
    )
