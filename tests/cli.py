"""The command line as a user has it: a process, one JSON document on standard output, an exit status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kit import paths

PROGRAM = Path(sys.executable).with_name("invoke")
OnHost = Callable[..., "subprocess.CompletedProcess[str]"]


@dataclass(frozen=True)
class Ran:
    """How a call ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on standard output; anything else there fails the test."""
        parsed: dict[str, Any] = json.loads(self.out)
        assert list(parsed) == ["schema_version", "ok", "task", "hosts", "result", "failures", "skipped"]
        assert parsed["ok"] is (self.code == 0)
        assert parsed["result"]["exit_code"] == self.code
        for failure in parsed["failures"]:
            assert list(failure) == ["code", "where", "expected", "found", "next"]
        return parsed

    @property
    def codes(self) -> list[str]:
        """The failures' codes."""
        return [failure["code"] for failure in self.document["failures"]]

    def ends(self) -> dict[str, int]:
        """Host -> its own exit code."""
        return {name: host["exit_code"] for name, host in self.document["result"]["hosts"].items()}

    def steps(self, name: str) -> dict[str, str]:
        """Step id -> action, of what is not kept."""
        host = self.document["result"]["hosts"][name]
        return {step["id"]: step["action"] for step in host["steps"] if step["action"] != "keep"}


def environment(**variables: str | Path) -> dict[str, str]:
    """Nothing of the developer's own settings but where their cache is."""
    own = ("B300KIT_FLEET", "B300KIT_RUNS", "B300KIT_DEBUG", "INVOKE_", "NO_COLOR")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(own)}
    return kept | {key: str(value) for key, value in variables.items()}


def start(*words: str, **variables: str | Path) -> subprocess.Popen[str]:
    """Begin a call with ``--format json``; the caller ends it."""
    return subprocess.Popen(
        [str(PROGRAM), *words, "--format", "json"],
        cwd="/", env=environment(**variables), text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], timeout: float = 300) -> Ran:
    """Wait for a call to end."""
    out, err = process.communicate(timeout=timeout)
    return Ran(process.returncode, out, err)


def invoke(*words: str, timeout: float = 300, **variables: str | Path) -> Ran:
    """One call, from a folder that is not the checkout's, with ``--format json``."""
    return finish(start(*words, **variables), timeout)


NOBODY = 65534
_REMOUNT = f'mount --bind {paths.ROOT} {paths.ROOT} && mount -o remount,bind,ro {paths.ROOT} && exec "$@"'
READ_ONLY = ("unshare", "--mount", "sh", "-c", _REMOUNT, "sh")
"""Put before a command (as root): it sees the checkout mounted read-only."""


def as_user(uid: int, *words: str, before: Sequence[str] = (), **variables: str | Path) -> Ran:
    """One call as another user (only root can), with these variables and the search path alone, and no terminal."""
    become = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "setsid", "--wait"]
    command = [*before, *become, str(PROGRAM), *words, "--format", "json"]
    chosen = {"PATH": "/usr/bin:/bin"} | {key: str(value) for key, value in variables.items()}
    done = subprocess.run(command, cwd="/", env=chosen, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return Ran(done.returncode, done.stdout, done.stderr)


PATIENCE_S = 60.0


def until(what: Callable[[], object]) -> None:
    """Wait for an event; its absence is a failure, not a pass."""
    deadline = time.monotonic() + PATIENCE_S
    while not what():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.01)


def fleet_of(folder: Path, names: Sequence[str], groups: Mapping[str, Sequence[str]] | None = None) -> Path:
    """A fleet folder of these simulated hosts alone: whatever else runs on this machine is not in it."""
    source = paths.cache_dir() / "fleet"
    (folder / "hosts").mkdir(parents=True)
    for name in names:
        (folder / "hosts" / f"{name}.yml").write_text((source / "hosts" / f"{name}.yml").read_text())
    (folder / "lock.yml").write_text((source / "lock.yml").read_text())
    file = {"schema_version": 1, "groups": {group: list(members) for group, members in (groups or {}).items()}}
    (folder / "fleet.yml").write_text(yaml.safe_dump(file))
    return folder


def edit(fleet: Path, name: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a host's declaration."""
    path = fleet / "hosts" / f"{name}.yml"
    spec = yaml.safe_load(path.read_text())
    change(spec)
    path.write_text(yaml.safe_dump(spec))


def as_root(*words: str) -> list[str]:
    """The command as root, as far as this user may."""
    return list(words) if os.geteuid() == 0 else ["sudo", "-n", *words]


# Every file with the time its content or mode last changed, and what lives in memory only. Left out is what any login writes.
_LOOK = r"""
skip='-path /run -o -path /var/log -o -path /var/lib/systemd -o -path /var/lib/sudo'
find / -xdev \( $skip \) -prune -o -printf '%p %y %m %U %s %C@\n' | sort
find /run/sim -type f ! -name 'kernel.*' -printf '%p %s %C@\n' | sort
cat /var/log/sim-gpu-writes.log 2>/dev/null
nft list ruleset; cat /proc/sys/vm/swappiness /sys/kernel/mm/transparent_hugepage/enabled
cat /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor | sort | uniq -c
systemctl show --property=Id,ActiveEnterTimestampMonotonic docker containerd irqbalance nvidia-persistenced ssh 'b300kit-*'
"""


def look(on_host: OnHost, name: str) -> set[str]:
    """All that a command could have changed on a host. Equal before and after: it changed nothing, and rewrote nothing."""
    return set(on_host(name, f"sudo sh -c '{_LOOK.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'").stdout.splitlines())
