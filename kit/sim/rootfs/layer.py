"""The kit's own parts of a simulated host's root file system, over Debian's: one for all hosts (user, sshd settings,
units, stubs, local package source), one a profile (the simulated hardware).

Each is keyed by a hash of every file that goes into it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.sim.commands import contained, run
from kit.sim.hardware import stubs_build
from kit.sim.hardware.profile import Profile
from kit.sim.hardware.system_tree import hardware_files
from kit.sim.locks import exclusive, unless_held
from kit.sim.model import Progress
from kit.sim.places import Places
from kit.sim.rootfs import mounts, packages

HERE = Path(__file__).resolve().parent
SIM = HERE.parent
GUEST = HERE / "guest"
STUBS = SIM / "stubs"
USER = "ops"
_UNUSED_S = 24 * 3600
MASKED = (
    "networking.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
    "console-getty.service",
    "getty.target",
)


def _sources() -> list[Path]:
    listed = [*GUEST.rglob("*"), *STUBS.rglob("*"), *packages.DEBS.rglob("*")]
    listed += [HERE / "layer.py", HERE / "packages.py", SIM / "hardware/stubs_build.py"]
    return sorted(p for p in listed if p.is_file() and "__pycache__" not in p.parts)


def layer_name(debian: str) -> str:
    """Changes with any file that goes into the layer and with the Debian layer under it."""
    digest = hashlib.sha256(debian.encode())
    for path in _sources():
        kind = b"x" if os.access(path, os.X_OK) else b"-"
        digest.update(str(path.relative_to(SIM)).encode() + b"\0" + kind + path.read_bytes() + b"\0")
    return f"kit-{digest.hexdigest()[:12]}"


@contextmanager
def _change_root(debian: Path, work: Path) -> Iterator[tuple[Path, Path]]:
    """The root to work in, and the folder that holds the layer afterwards."""
    root = work / "root"
    overlaid = mounts.compose([debian], work / "upper", root)
    try:
        yield root, work / "upper" if overlaid else root
    finally:
        mounts.release(root)


def _install_guest_files(root: Path) -> None:
    for source in sorted(GUEST.rglob("*")):
        if "__pycache__" in source.parts:
            continue
        target = root / source.relative_to(GUEST)
        if source.is_dir():
            target.mkdir(exist_ok=True)
            continue
        shutil.copyfile(source, target)
        target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def _settle(root: Path) -> None:
    """Everything that needs the guest's own tools."""
    chroot = contained("chroot", root)
    run([*chroot, "useradd", "--create-home", "--shell", "/bin/bash", USER])
    sudoers = root / "etc/sudoers.d/ops"
    sudoers.write_text(f"{USER} ALL=(ALL) NOPASSWD: ALL\n")
    sudoers.chmod(0o440)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()  # each host gets its own, made before its first boot so that the spec can pin it
    for unit in MASKED:
        (root / "etc/systemd/system" / unit).symlink_to("/dev/null")
    # The local source is the only one: a simulated host has no way out to a mirror.
    debs = packages.build_source(root / "opt/sim/apt")
    (root / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/opt/sim/apt ./\n")
    run([*chroot, "dpkg", "--install", *(f"/opt/sim/apt/{name}" for name in debs)])
    run([*chroot, "apt-get", "-qq", "update"])
    run([*chroot, "systemctl", "--quiet", "enable", "sim-hardware.service", *packages.SERVICES])
    run([*chroot, "dpkg-divert", "--quiet", "--local", "--rename", "--add", "/usr/bin/dmesg"])
    (root / "usr/bin/dmesg").symlink_to("/opt/sim/bin/dmesg")
    stubs_build.build(root / "opt/sim/lib")


def kit_layer(places: Places, debian: Path, progress: Progress) -> Path:
    """The unpacked layer, to be put over `debian`; built when any of its sources changed."""
    target = places.layers / layer_name(debian.name)
    with exclusive(places.building(target)):
        if target.is_dir():
            os.utime(target)
            return target
        progress("building the simulated hardware's layer (once, some seconds)")
        work = places.layers / f"{target.name}.new"
        mounts.delete(work)
        with _change_root(debian, work) as (root, made):
            _install_guest_files(root)
            _settle(root)
        made.rename(target)
        mounts.delete(work)
    return target


def hardware_layer(
    places: Places, name: str, profile: Profile, kit: Path, progress: Progress, *, own_kernel: bool = False
) -> Path:
    """The layer with the profile's hardware: ``/opt/sim`` data, and NVIDIA's libraries under their version."""
    files = hardware_files(profile, memory_kib(), own_kernel=own_kernel)
    digest = hashlib.sha256(f"{kit.name}\0{profile.driver.library}\0".encode())
    for path, text in sorted(files.items()):
        digest.update(f"{path}\0{text}\0".encode())
    target = places.layers / f"hardware-{name}-{digest.hexdigest()[:12]}"
    with exclusive(places.building(target)):
        if target.is_dir():
            os.utime(target)
            return target
        progress(f"building the hardware of profile {name}")
        work = places.layers / f"{target.name}.new"
        mounts.delete(work)
        for path, text in files.items():
            file = work / "opt/sim" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        libraries = work / "usr/lib/x86_64-linux-gnu"
        libraries.mkdir(parents=True)
        for library in stubs_build.LIBRARIES:
            versioned = stubs_build.file_name(library, profile.driver.library)
            shutil.copyfile(kit / "opt/sim/lib" / library, libraries / versioned)
            (libraries / library).symlink_to(versioned)
        work.rename(target)
    return target


def prune(places: Places, used: set[str]) -> None:
    """Delete layers that no host is made of and that nobody asked for in a day: each change of a source makes a new one."""
    for folder in places.layers.iterdir():
        with exclusive(places.building(folder)):
            if not folder.exists():
                continue
            stale = time.time() - folder.stat().st_mtime > _UNUSED_S
            if stale and folder.name not in used and not folder.name.startswith("debian-"):
                mounts.delete(folder)


def sweep(places: Places) -> None:
    """Remove what builds that were cut off left, mounts first; one that is under way now is left alone."""
    for folder in sorted(places.layers.glob("*.new")):
        with unless_held(places.building(folder.with_suffix(""))) as ours:
            if ours:
                mounts.delete(folder)


def memory_kib() -> int:
    """RAM of this machine, which the simulated NUMA nodes share."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    raise ValueError("/proc/meminfo has no MemTotal line")
