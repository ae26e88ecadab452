"""Run a command on a simulated host while it is being brought up, with its key pinned."""

from __future__ import annotations

import subprocess
import time

from kit.errors import ExitCode, KitError, failure
from kit.sim.model import HostState
from kit.sim.places import Places
from kit.sim.rootfs.layer import USER

SSH_FAILED = 255
"""ssh's own exit status when there was no session."""


def login(places: Places, state: HostState) -> list[str]:
    """argv with which a person logs in: the key, and the host's own key pinned by name."""
    port = [] if state.port == 22 else ["-p", str(state.port)]
    return [
        "ssh", "-i", str(places.client_key), "-o", "IdentitiesOnly=yes", "-o", f"UserKnownHostsFile={places.known_hosts}",
        "-o", "StrictHostKeyChecking=yes", "-o", f"HostKeyAlias={state.name}", *port, f"{USER}@{state.address}",
    ]  # fmt: skip


def ssh(
    places: Places, state: HostState, alias: str, command: str, timeout_s: float, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    """Raises KitError(TIMEOUT, ``sim.boot``) when it takes longer than `timeout_s`; any exit status is returned."""
    words = [
        "ssh", "-q", "-i", str(places.client_key), "-p", str(state.port), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes",
        "-o", "StrictHostKeyChecking=yes", "-o", f"HostKeyAlias={alias}", "-o", "UserKnownHostsFile=none",
        "-o", "GlobalKnownHostsFile=none", "-o", f"KnownHostsCommand=/usr/bin/echo {alias} {state.host_key}",
        f"{USER}@{state.address}", command,
    ]  # fmt: skip
    try:
        return subprocess.run(words, input=stdin, capture_output=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired:
        raise KitError(
            failure(
                "sim.boot",
                f"simulated host {state.name}",
                f"`{command[:60]}` within {timeout_s:.0f} s",
                "still running",
                "look at this machine's load, then again",
            ),
            ExitCode.TIMEOUT,
        ) from None


def settle(places: Places, state: HostState, timeout_s: float) -> None:
    """Wait until all units are up or failed: a host that sshd answers for may still be starting docker.

    A failed unit is no failure here: some profiles are hosts with one. Raises KitError(``sim.boot``) otherwise.
    """
    deadline = time.monotonic() + timeout_s
    done = ssh(places, state, state.name, "systemctl is-system-running --wait", timeout_s)
    while done.returncode == SSH_FAILED and time.monotonic() < deadline:
        time.sleep(0.2)  # sshd takes a moment to start again with its new key
        done = ssh(places, state, state.name, "systemctl is-system-running --wait", timeout_s)
    if done.stdout.strip() not in (b"running", b"degraded"):
        said = (done.stdout + done.stderr).decode(errors="replace").strip()
        raise KitError(
            failure(
                "sim.boot",
                f"simulated host {state.name}",
                "login as ops and a started system",
                f"exit {done.returncode} {said}",
                "look at what it said; on a busy machine try again",
            ),
            ExitCode.INTERNAL,
        )
