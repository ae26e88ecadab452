"""The Debian part of a root file system: built once with mmdebstrap from the machine's own mirror, then shared by all hosts."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.sim.commands import contained, run
from kit.sim.locks import exclusive
from kit.sim.model import Progress, Runtime
from kit.sim.places import Places
from kit.sim.rootfs import mounts

SUITE = "bookworm"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "openssh-server", "python3-minimal", "python3-apt", "sudo", "iproute2",
    "procps", "nftables", "kmod",
)  # fmt: skip
QEMU_PACKAGES = ("linux-image-cloud-amd64", "initramfs-tools", "zstd")
"""For a machine of its own: a kernel, and an initramfs that finds the disk."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


def packages_for(runtime: Runtime) -> tuple[str, ...]:
    """What the root file system of such a host is made of; pure."""
    return PACKAGES + QEMU_PACKAGES if runtime == "qemu" else PACKAGES


def layer_name(packages: tuple[str, ...]) -> str:
    """Changes with what is asked of Debian, not with the day: a cached layer is used until it is removed."""
    digest = hashlib.sha256("\n".join([SUITE, *sorted(packages)]).encode()).hexdigest()[:12]
    return f"debian-{SUITE}-{digest}"


def mirror(index_targets: str) -> str | None:
    """First mirror of Debian's own archive among this machine's apt sources; None on another distribution. Pure.

    `index_targets` is what ``apt-get indextargets --format '$(REPO_URI)|$(LABEL)|$(COMPONENT)'`` prints.
    """
    for line in index_targets.splitlines():
        uri, _, rest = line.partition("|")
        if rest == "Debian|main":
            return uri
    return None


def _proxy_options() -> list[str]:
    """The machine's apt proxy settings: mmdebstrap's apt does not read the machine's configuration."""
    lines = run(["apt-config", "dump"]).splitlines()
    wanted = ("Acquire::http::Proxy ", "Acquire::https::Proxy ", "Acquire::http::Proxy::", "Acquire::https::Proxy::")
    return [f"--aptopt={line.rstrip(';')}" for line in lines if line.startswith(wanted) and '""' not in line]


def debian_layer(places: Places, runtime: Runtime, progress: Progress) -> Path:
    """The unpacked Debian tree, read-only by agreement. Takes some minutes the first time.

    Raises KitError(INTERNAL, ``sim.command``) with mmdebstrap's words when the mirror cannot be read.
    """
    packages = packages_for(runtime)
    target = places.layers / layer_name(packages)
    with exclusive(places.building(target)):
        if target.is_dir():
            return target
        if not KEYRING.is_file():
            raise KitError(
                failure("sim.keyring", str(KEYRING), "Debian's archive keys", "no such file", "install debian-archive-keyring"),
                ExitCode.USAGE,
            )
        progress("building the Debian root file system from packages it fetches: only the first time, one to five minutes")
        work = target.with_suffix(".new")
        mounts.delete(work)
        work.parent.mkdir(parents=True, exist_ok=True)
        source = mirror(run(["apt-get", "indextargets", "--format", "$(REPO_URI)|$(LABEL)|$(COMPONENT)"]))
        # mmdebstrap mounts proc, sys and the machine's own /dev/shm in the tree: none of that may outlive it.
        run(
            contained(
                "mmdebstrap", "--variant=minbase", "--mode=root", "--format=directory", f"--keyring={KEYRING}",
                f"--include={','.join(packages)}", *_proxy_options(), SUITE, work, *([source] if source else []),
            ),
            timeout_s=1800,
        )  # fmt: skip
        work.rename(target)
    return target
