"""What the control machine needs for simulated hosts, checked before anything is made."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

from kit.errors import ExitCode, Failure, KitError, failure
from kit.sim.model import Runtime
from kit.sim.rootfs.debian import KEYRING

TOOLS = {
    "systemd-nspawn": "systemd-container",
    "mmdebstrap": "mmdebstrap",
    "ip": "iproute2",
    "ssh-keygen": "openssh-client",
    "gcc": "gcc libc6-dev",
    "dpkg-deb": "dpkg",
    "mount": "mount",
    "unshare": "util-linux",
    "setpriv": "util-linux",
}
"""Command -> Debian and Ubuntu package."""
INOTIFY_A_MACHINE = 9
"""inotify instances of a booted machine: systemd, its services and logins."""
QEMU_TOOLS = {"qemu-system-x86_64": "qemu-system-x86", "qemu-img": "qemu-utils", "mke2fs": "e2fsprogs"}


def missing(runtime: Runtime = "nspawn") -> list[Failure]:
    """One failure for each package that is not there."""
    tools = TOOLS | (QEMU_TOOLS if runtime == "qemu" else {})
    found = [
        failure("sim.requirement", f"{tool} on this machine", "installed", "not found", f"apt-get install {package}")
        for tool, package in tools.items()
        if shutil.which(tool, path="/usr/sbin:/usr/bin:/sbin:/bin") is None
    ]
    if not KEYRING.is_file():
        found.append(
            failure("sim.requirement", str(KEYRING), "Debian's archive keys", "not found", "install debian-archive-keyring")
        )
    if not Path("/proc/self/ns/net").exists():
        found.append(
            failure("sim.requirement", "the kernel of this machine", "network namespaces", "none", "use another machine")
        )
    return found


def inotify_used(processes: Path = Path("/proc")) -> int:
    """inotify instances that are open on this machine."""
    used = 0
    for descriptor in processes.glob("[0-9]*/fd/*"):
        with contextlib.suppress(OSError):
            used += descriptor.readlink() == Path("anon_inode:inotify")
    return used


def room(used: int, limit: int) -> None:
    """Raises KitError(USAGE) where one more machine would not come up: its systemd could watch nothing, and says so nowhere.

    The kernel counts inotify instances by user, and root in a machine is this machine's root.
    """
    if used + INOTIFY_A_MACHINE > limit:
        step = f"take simulated hosts down (invoke sim.status), or sysctl -w fs.inotify.max_user_instances={max(512, 2 * limit)}"
        expected = f"{INOTIFY_A_MACHINE} of {limit} left for one more machine"
        raise KitError(failure("sim.inotify", "fs.inotify.max_user_instances", expected, f"{used} in use", step), ExitCode.USAGE)


def check(runtime: Runtime) -> None:
    """Raises KitError(USAGE) with everything that is missing."""
    failures = missing(runtime)
    if failures:
        raise KitError(failures, ExitCode.USAGE)
