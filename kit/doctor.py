"""``invoke doctor``: is this control machine ready? Looks only; every gap comes with its next step."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from kit import paths
from kit.errors import ExitCode, Failure, failure
from kit.outcome import Outcome

PYTHON_MIN = (3, 11)
SSH_MIN = (8, 5)
"""KnownHostsCommand, by which host keys are pinned without a file, came with OpenSSH 8.5."""
DISK_MIN_MIB = {"runs": 200, "cache": 3000}
"""A record is a few MiB; the root file system of simulated hosts and its build take about 2 GiB."""


@dataclass(frozen=True)
class Check:
    """One thing looked at. ``needed_for`` is ``hosts`` (everything) or ``simulation`` (only sim.* and demo)."""

    name: str
    needed_for: str
    ok: bool
    expected: str
    found: str
    next: str = ""


def ssh_version(text: str) -> tuple[int, int] | None:
    """(major, minor) from what ``ssh -V`` prints; None when it is not OpenSSH's."""
    match = re.search(r"OpenSSH_(\d+)\.(\d+)", text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def examine(simulation: Mapping[str, Sequence[Failure]]) -> Outcome:
    """``simulation`` holds what the simulator misses, by runtime (``nspawn``, ``qemu``); it knows its own needs.

    Exit 2 when real hosts cannot be worked on; gaps for simulated hosts alone are told as skipped, and exit 0.
    """
    checks = [_python(), _ssh(), _ansible(), *_folders(), _privilege()]
    for runtime, gaps in simulation.items():
        kind = f"simulation with {runtime}"
        checks += [Check(gap.where, kind, False, gap.expected, gap.found, gap.next) for gap in gaps]
        if not gaps:
            checks.append(Check(runtime, kind, True, "all its tools", "all there"))
    failures = [
        failure(f"doctor.{check.name}", "this machine", check.expected, check.found, check.next)
        for check in checks
        if not check.ok and check.needed_for == "hosts"
    ]
    skipped = [f"{c.needed_for}: {c.name}: {c.found}; {c.next}" for c in checks if not c.ok and c.needed_for != "hosts"]
    return Outcome(
        "doctor",
        result={"checks": [asdict(check) for check in checks]},
        failures=tuple(failures),
        skipped=tuple(skipped),
        exit_code=ExitCode.USAGE if failures else ExitCode.OK,
        text=_text(checks),
    )


def _text(checks: Sequence[Check]) -> str:
    lines = [
        f"{'ok     ' if c.ok else 'missing'}  {c.name:24} {c.found}" + ("" if c.ok else f"  (for {c.needed_for}). Next: {c.next}")
        for c in checks
    ]
    kinds = list(dict.fromkeys(check.needed_for for check in checks))
    for kind in kinds:
        ready = all(check.ok for check in checks if check.needed_for == kind)
        lines.append(f"{'ready' if ready else 'NOT ready'} for {kind}")
    return "\n".join(lines)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = ".".join(map(str, PYTHON_MIN))
    step = f"install python3 {wanted} or later, then `make clean setup`"
    return Check("python", "hosts", sys.version_info[:2] >= PYTHON_MIN, f"{wanted} or later", version, step)


def _said(command: Sequence[str]) -> str | None:
    """What a command prints; None when it is not there or does not end well."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, stdin=subprocess.DEVNULL, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout + done.stderr if done.returncode == 0 else None


def _ssh() -> Check:
    text = _said(["ssh", "-V"])
    found = ssh_version(text) if text is not None else None
    wanted = ".".join(map(str, SSH_MIN))
    shown = (text or "").strip() or "no ssh client"
    return Check(
        "ssh",
        "hosts",
        found is not None and found >= SSH_MIN,
        f"OpenSSH {wanted} or later",
        shown,
        "apt-get install openssh-client",
    )


def _ansible() -> Check:
    program = Path(sys.executable).parent / "ansible-playbook"
    text = _said([str(program), "--version"])
    shown = text.splitlines()[0] if text else f"{program} does not run"
    return Check("ansible", "hosts", text is not None, "ansible-core of this environment", shown, "run `make setup`")


def _folders() -> list[Check]:
    out = []
    for name, path in (("runs", paths.runs_dir()), ("cache", paths.cache_dir())):
        there = next(folder for folder in (path, *path.parents) if folder.exists())
        free = shutil.disk_usage(there).free >> 20
        writable = os.access(there, os.W_OK)
        needed = DISK_MIN_MIB[name]
        kind = "hosts" if name == "runs" else "simulation"
        shown = f"{path}: {free} MiB free" + ("" if writable else ", not writable")
        step = f"free some space or set B300KIT_{name.upper()} to another folder"
        out.append(Check(f"{name} folder", kind, writable and free >= needed, f"writable, {needed} MiB free", shown, step))
    return out


def _privilege() -> Check:
    if os.geteuid() == 0:
        return Check("privilege", "simulation", True, "root or sudo", "root")
    found = shutil.which("sudo")
    return Check("privilege", "simulation", found is not None, "root or sudo", found or "neither", "apt-get install sudo")
