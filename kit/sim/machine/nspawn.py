"""How a host is started with systemd-nspawn."""

from __future__ import annotations

import json
from pathlib import Path

from kit.sim.machine import cgroups
from kit.sim.places import HostPlaces, netns

SUPERVISOR = Path(__file__).with_name("supervisor.py")


def command(root: Path, name: str, index: int) -> list[str]:
    """argv of systemd-nspawn; pure.

    ``--register=no --keep-unit``: works without a running systemd on the control machine. Never wrap it in
    ``ip netns exec``: that remounts /sys, and nspawn then refuses.
    """
    return [
        "systemd-nspawn", "--quiet", "--directory", str(root), "--boot", "--register=no", "--keep-unit", "--machine", name,
        f"--network-namespace-path=/run/netns/{netns(index)}", "--capability=CAP_NET_ADMIN", "--console=pipe",
        "--link-journal=no", "--resolv-conf=off", "--timezone=off",
    ]  # fmt: skip


def prepare(at: HostPlaces, name: str, index: int, memory_mib: int | None) -> str:
    """Make the control groups; returns the supervisor's configuration as JSON."""
    layout = cgroups.machine_layout()
    late = cgroups.create(layout, cgroups.group_name(index), memory_mib)
    return json.dumps(
        {
            "command": command(at.root, name, index),
            "console": str(at.console),
            "log": str(at.supervisor_log),
            "cgroups": [str(path) for path in cgroups.folders(layout, cgroups.group_name(index))],
            "late_writes": late,
        },
        indent=2,
    )
