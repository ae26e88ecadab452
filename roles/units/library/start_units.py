#!/usr/bin/python3
"""Starts and reloads systemd units in one call, and says what one that fails said itself."""

from __future__ import annotations

import subprocess
import time

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: start_units
short_description: Enable, restart and reload systemd units
description:
  - In this order - enable those that are not, read the service manager's files again when asked, restart, reload.
  - Enabling reads nothing again (C(--no-reload)). That would detach GPUs from running containers, and is done only when asked.
  - The first unit that does not start ends the call with the last lines of its own log.
options:
  daemon_reload:
    description: Whether unit files changed.
    type: bool
    default: false
  restart:
    description: Units to enable and restart, in this order.
    type: list
    elements: str
    default: []
  reload:
    description: Units to enable and reload; one that does not run is started.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    description: Does nothing and reports a change when anything was asked for.
    support: full
author: b300kit
"""

EXAMPLES = r"""
- name: Start a unit whose file is new
  start_units:
    daemon_reload: true
    restart: [b300kit-cpu.service]
"""

RETURN = r"""
enabled:
  description: Units that are enabled now and were not before.
  returned: always
  type: list
  elements: str
"""

AT_BOOT = {"enabled", "static", "indirect", "generated", "alias"}
"""States of units that need no enabling, or cannot have it."""
JOB_TIMEOUT_S = 900
LINES = 12
LOG_WAIT_S = 2.0


class Failed(Exception):
    """A unit, or the service manager, did not do as asked."""


def systemctl(*words: str) -> subprocess.CompletedProcess[str]:
    """Its outcome, not judged."""
    return tool("systemctl", *words)


def tool(*argv: str) -> subprocess.CompletedProcess[str]:
    """A command's outcome. Failed when it does not end."""
    try:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{' '.join(argv)}: {error}") from None


def must(*words: str) -> None:
    """Failed unless systemctl accepts it."""
    done = systemctl(*words)
    if done.returncode != 0:
        raise Failed(f"systemctl {' '.join(words)}: {done.stderr.strip() or done.stdout.strip() or 'no message'}")


def enable(units: list[str]) -> list[str]:
    """Enable those that are not; their names."""
    new = [unit for unit in units if systemctl("is-enabled", unit).stdout.strip() not in AT_BOOT]
    if new:
        must("--no-reload", "enable", *new)
    return new


def start(verb: str, unit: str) -> None:
    """Failed with the unit's own words when the job fails, with the service manager's when there was no job.

    A unit that is masked, or not there, was not run: the words of its last run would be those of an earlier, good one.
    """
    done = systemctl(verb, unit)
    if done.returncode != 0:
        manager = done.stderr.strip()
        said = manager if manager.startswith("Failed to ") else own_words(unit) or manager
        raise Failed(f"{unit} did not {verb}: {said or 'it said nothing'}")


def own_words(unit: str) -> str:
    """The last lines of its last run only: what the service manager says about it tells nobody why."""
    run = systemctl("show", "--property=InvocationID", "--value", unit).stdout.strip()
    if not run:
        return ""
    deadline = time.monotonic() + LOG_WAIT_S
    while True:
        query = ["--quiet", f"--lines={LINES}", "--output=cat", "--no-pager", f"_SYSTEMD_INVOCATION_ID={run}"]
        said = tool("journalctl", *query).stdout.strip()
        # The journal takes in what a unit printed a moment after the unit has ended.
        if said or time.monotonic() >= deadline:
            return " | ".join(said.splitlines())
        time.sleep(0.1)


def main() -> None:
    """Enable, read again, restart, reload."""
    names = {"type": "list", "elements": "str", "default": []}
    spec = {"daemon_reload": {"type": "bool", "default": False}, "restart": names, "reload": names}
    module = AnsibleModule(argument_spec=spec, supports_check_mode=True)
    asked = module.params
    work = bool(asked["daemon_reload"] or asked["restart"] or asked["reload"])
    if module.check_mode or not work:
        module.exit_json(changed=work, enabled=[])
    enabled: list[str] = []
    try:
        enabled = enable([*asked["restart"], *asked["reload"]])
        if asked["daemon_reload"]:
            must("daemon-reload")
        for unit in asked["restart"]:
            start("restart", unit)
        for unit in asked["reload"]:
            runs = systemctl("is-active", unit).stdout.strip() == "active"
            start("reload" if runs else "start", unit)
    except Failed as failed:
        module.fail_json(msg=str(failed), changed=True, enabled=enabled)
    module.exit_json(changed=True, enabled=enabled)


if __name__ == "__main__":
    main()
