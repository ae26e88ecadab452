"""Runs Ansible once for all hosts that change, and says per host what came of it.

Edge: starts one ``ansible-playbook``, in a private folder of the run's record. It dies with this process, so that no
orphan goes on changing hosts whose lock is free again.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ansible_runner

from kit.apply import explain
from kit.apply.inventory import connection_variables
from kit.apply.result import ApplyEvent, ApplyResult
from kit.apply.variables import role_variables
from kit.errors import ExitCode, Failure, KitError, failure
from kit.paths import ROOT
from kit.plan.model import Plan
from kit.spec.target import Target

STATUS = {
    "runner_on_ok": "ok",
    "runner_on_skipped": "skipped",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_item_on_failed": "item_failed",
}


def apply(
    work: Mapping[Target, Plan],
    run_dir: Path,
    on_event: Callable[[ApplyEvent], None],
    forks: int,
    reboot: bool = False,
) -> dict[str, ApplyResult]:
    """Carry out the change steps of each plan (the reboot too, when asked); returns and raises as :func:`play` does."""
    variables = {target: role_variables(plan, reboot) for target, plan in work.items()}
    return play("apply", variables, run_dir, on_event, forks)


def play(
    playbook: str,
    variables: Mapping[Target, Mapping[str, Any]],
    run_dir: Path,
    on_event: Callable[[ApplyEvent], None],
    forks: int,
) -> dict[str, ApplyResult]:
    """Run a playbook of this checkout on hosts, each with its variables, and return each host's recap by name.

    Never raises for what happens on a host: that is in the recap's failures. A Ctrl-C or SIGTERM stops Ansible and is
    told as ``apply.interrupted`` with exit code 130 or 143. Raises KitError(INTERNAL) when Ansible is not installed.
    """
    folder = run_dir / "ansible"
    inventory = folder / "inventory.json"
    hosts = {target.name: _Host(target.name) for target in variables}
    watch = _Watch(hosts, on_event)
    with _signals() as stop:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _private(inventory, json.dumps(_inventory(variables), indent=1))
            run = ansible_runner.run(
                private_data_dir=str(folder),
                inventory=str(inventory),
                binary=_tool("setpriv"),
                cmdline=shlex.join(
                    ["--pdeathsig", "TERM", _tool("ansible-playbook"), str(ROOT / "playbooks" / f"{playbook}.yml")]
                ),
                forks=max(1, min(forks, len(variables))),
                envvars={
                    "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
                    "ANSIBLE_INVENTORY_ENABLED": "yaml",
                    "ANSIBLE_HOME": str(folder / "home"),
                    "ANSIBLE_NOCOLOR": "1",
                    # Ansible refuses to start in a locale that is not UTF-8, and cron's is C.
                    "LC_ALL": "C.UTF-8",
                },
                event_handler=watch.event,
                cancel_callback=stop.is_set,
                quiet=True,
            )
            rc, words = run.rc, _tail(folder) if run.rc not in (0, 2, 4) else ""
        except OSError as error:
            # Ansible's own files lie in the record, too.
            rc, words = 1, str(error)
    signal_number = stop.number
    return {name: host.result(watch.stats, signal_number, rc, words) for name, host in hosts.items()}


@dataclass
class _Host:
    """What was seen of one host so far."""

    name: str
    events: list[ApplyEvent] = field(default_factory=list)
    last: Failure | None = None
    item: str = ""
    """What the last failed item of a loop said; the loop itself only says that one failed."""

    def result(self, stats: Mapping[str, Any] | None, signal_number: int, rc: int, words: str) -> ApplyResult:
        count = {s: sum(e.status == s for e in self.events) for s in ("ok", "changed", "skipped")}
        failures, code = self._ended(stats, signal_number, rc, words)
        return ApplyResult(
            host=self.name,
            ok=count["ok"],
            changed=count["changed"],
            skipped=count["skipped"],
            seconds=sum(e.seconds for e in self.events),
            events=tuple(self.events),
            failures=failures,
            exit_code=code,
        )

    def _ended(self, stats: Mapping[str, Any] | None, signal_number: int, rc: int, words: str) -> tuple[tuple[Failure, ...], int]:
        if signal_number:
            found = f"signal {signal_number} after {len(self.events)} tasks"
            told = failure(
                "apply.interrupted", self.name, "Ansible runs to its end", found, "run again: it goes on where this ended"
            )
            return (told,), 128 + signal_number
        if stats is None and self.last is None and explain.no_room(words):
            return (explain.record_full(self.name, words),), ExitCode.INTERNAL
        if stats is None:
            told = failure(
                "apply.ansible",
                self.name,
                "Ansible runs to its end",
                words or f"status {rc}",
                "look at ansible/artifacts in the record",
            )
            return (self.last or told,), ExitCode.APPLY_FAILED
        if self.name in stats.get("dark", {}):
            return (self.last or explain.unreachable(self.name, "", "connect", "no message"),), ExitCode.UNREACHABLE
        if self.name in stats.get("failures", {}):
            return (self.last or explain.failed(self.name, "", "unknown task", "no message"),), ExitCode.APPLY_FAILED
        if self.name not in stats.get("processed", {}):
            told = failure("apply.not_run", self.name, "tasks run on the host", "none", "look at ansible/artifacts in the record")
            return (told,), ExitCode.APPLY_FAILED
        return (), ExitCode.OK


class _Watch:
    """Turns Ansible's events into ours. Called by the runner, one event at a time."""

    def __init__(self, hosts: Mapping[str, _Host], on_event: Callable[[ApplyEvent], None]) -> None:
        self.hosts = hosts
        self.on_event = on_event
        self.stats: dict[str, Any] | None = None

    def event(self, event: dict[str, Any]) -> bool:
        """False: the runner need not keep a file for it; what matters is in the recap."""
        kind, data = event.get("event", ""), event.get("event_data", {})
        if kind == "playbook_on_stats":
            self.stats = data
        status, host = STATUS.get(kind), self.hosts.get(data.get("host", ""))
        if status is None or host is None:
            return False
        result = data.get("res") or {}
        role, task = data.get("role") or "", data.get("task") or ""
        if status == "item_failed":
            host.item = f"{_label(result)}{explain.message(result)}"
            return False
        if status == "ok" and result.get("changed"):
            status = "changed"
        said = host.item or explain.message(result)
        if status == "failed":
            host.last = explain.failed(host.name, role, task, said)
        elif status == "unreachable":
            host.last = explain.unreachable(host.name, role, task, said)
        host.item = ""
        told = ApplyEvent(
            host=host.name, role=role, task=task, status=status, seconds=round(float(data.get("duration") or 0.0), 3)
        )
        host.events.append(told)
        self.on_event(told)
        return False


def _label(result: Mapping[str, Any]) -> str:
    label = result.get("_ansible_item_label", result.get("item"))
    return f"{label}: " if isinstance(label, str) else ""


def _inventory(work: Mapping[Target, Mapping[str, Any]]) -> dict[str, Any]:
    """Hosts with their connection and what their roles are to do. No secret: keys are named by their files."""
    hosts = {
        target.name: connection_variables(target.spec.connection, target.name, target.fleet.ssh_connect_timeout_s) | dict(given)
        for target, given in work.items()
    }
    return {"all": {"hosts": hosts}}


def _tool(name: str) -> str:
    """A program beside this Python, else on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise KitError(failure("control.tool", "control machine", name, "not installed", "run `make setup`"), ExitCode.INTERNAL)
    return found


def _private(path: Path, text: str) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)


def _tail(folder: Path) -> str:
    """The last lines that Ansible printed: it ended before it could report."""
    outputs = sorted((folder / "artifacts").glob("*/stdout"), key=lambda p: p.stat().st_mtime)
    return " ".join(outputs[-1].read_text(errors="replace").split())[-explain.LONGEST :] if outputs else ""


class _Stop(threading.Event):
    """Set by a signal, and remembers which."""

    number = 0

    def handle(self, number: int, _frame: object) -> None:
        self.number = number
        self.set()


@contextmanager
def _signals() -> Iterator[_Stop]:
    """While Ansible runs, Ctrl-C and SIGTERM stop it first; afterwards whoever handled them does so again."""
    stop = _Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
