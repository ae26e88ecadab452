"""The qemu machine, booted once: a disk image with a snapshot of the running system, from which hosts start in seconds.

Built without loop mounts. Whether KVM is worth anything is decided by whether the machine boots with it in time: on some
machines ``/dev/kvm`` opens and a guest then crawls.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.sim import states
from kit.sim.commands import run
from kit.sim.locks import exclusive
from kit.sim.machine import qemu, remote
from kit.sim.model import HostState, Progress
from kit.sim.places import Places
from kit.sim.rootfs import host_root, mounts
from kit.sim.rootfs.keys import ensure_pair

KVM_BOOT_S = 60
TCG_BOOT_S = 900
BUSY = "what its console said last is in `found`; on a busy machine try again, or use --runtime nspawn"
_NETWORK = f"""[Unit]
Description=Network of the simulated machine
DefaultDependencies=no
Before=network.target ssh.service
After=sys-subsystem-net-devices-eth0.device
Wants=sys-subsystem-net-devices-eth0.device network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/sbin/ip link set lo up
ExecStart=/usr/sbin/ip address replace {qemu.GUEST_ADDRESS}/24 dev eth0
ExecStart=/usr/sbin/ip link set eth0 up

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Template:
    """A built one."""

    folder: Path
    accelerator: qemu.Accelerator
    host_key: str

    @property
    def disk(self) -> Path:
        """qcow2 with the snapshot."""
        return self.folder / "disk.qcow2"

    @property
    def kernel(self) -> Path:
        """Loaded by qemu itself: no boot loader in the image."""
        return self.folder / "vmlinuz"

    @property
    def initrd(self) -> Path:
        """Of the same package."""
        return self.folder / "initrd.img"


def _read(folder: Path) -> Template:
    accelerator = (folder / "accelerator").read_text().strip()
    return Template(folder, "kvm" if accelerator == "kvm" else "tcg", (folder / "host_key.pub").read_text().strip())


def template(places: Places, layers: list[Path], client_key: str, progress: Progress) -> Template:
    """The machine made of these layers, built and booted when it is not there yet: some minutes, once.

    Raises KitError(TIMEOUT, ``sim.boot``) when it does not boot, with or without KVM.
    """
    digest = hashlib.sha256("\0".join([client_key, *(layer.name for layer in layers)]).encode()).hexdigest()[:12]
    target = places.layers / f"qemu-{digest}"
    with exclusive(places.building(target)):
        if not target.is_dir():
            work = places.layers / f"{target.name}.new"
            mounts.delete(work)
            work.mkdir(parents=True)
            try:
                _build(places, work, layers, client_key, progress)
                work.rename(target)
            finally:
                mounts.delete(work)
        os.utime(target)
    return _read(target)


def _build(places: Places, work: Path, layers: list[Path], client_key: str, progress: Progress) -> None:
    progress("building the machine's disk")
    root = work / "root"
    mounts.compose(layers, work / "upper", root)
    host_key = host_root.write(root, "template", client_key)
    unit = root / "etc/systemd/system/sim-network.service"
    unit.write_text(_NETWORK)
    (unit.parent / "multi-user.target.wants/sim-network.service").symlink_to(unit.name)
    (root / "etc/fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    kernel = next((root / "boot").glob("vmlinuz-*"))
    shutil.copyfile(kernel, work / "vmlinuz")
    shutil.copyfile(next((root / "boot").glob("initrd.img-*")), work / "initrd.img")
    run(["mke2fs", "-q", "-t", "ext4", "-d", root, work / "raw.img", "3G"], timeout_s=600)
    mounts.release(root)
    (work / "host_key.pub").write_text(host_key)
    for accelerator, patience in (("kvm", KVM_BOOT_S), ("tcg", TCG_BOOT_S)):
        if accelerator == "kvm" and not os.access("/dev/kvm", os.W_OK):
            continue
        run(["qemu-img", "convert", "-f", "raw", "-O", "qcow2", work / "raw.img", work / "disk.qcow2"], timeout_s=600)
        (work / "accelerator").write_text(accelerator)
        progress(f"booting the machine once with {accelerator} (at most {patience} s)")
        if _snapshot(places, _read(work), patience):
            for leftover in ("root", "upper", "upper.work"):
                shutil.rmtree(work / leftover)
            (work / "raw.img").unlink()
            return
    console = (work / "console.log").read_text(errors="replace")[-800:]
    raise KitError(
        failure("sim.boot", "the qemu machine", f"ssh within {TCG_BOOT_S} s", f"none: {console}", BUSY), ExitCode.TIMEOUT
    )


def _snapshot(places: Places, machine: Template, patience_s: float) -> bool:
    """Boot it, and save it running. False when it did not boot in time."""
    folder, port = machine.folder, qemu.free_port()
    state = HostState(
        name="template", profile="", runtime="qemu", index=0, address="127.0.0.1", port=port, host_key=machine.host_key,
        machine_boot_id="", supervisor_pid=0, supervisor_start=0,
    )  # fmt: skip
    words = qemu.command(machine.disk, machine.kernel, machine.initrd, folder / "qmp", port, machine.accelerator, load=False)
    with (folder / "console.log").open("wb") as console:
        # Whatever ends this process ends the machine: nobody else knows of it yet.
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *words], stdin=subprocess.DEVNULL, stdout=console, stderr=console
        )
        try:
            deadline = time.monotonic() + patience_s
            while not states.answers(state.address, port, timeout_s=10):
                if process.poll() is not None or time.monotonic() > deadline:
                    return False
                time.sleep(0.5)
            remote.settle(places, state, max(60.0, deadline - time.monotonic()))
            qemu.Monitor(folder / "qmp").human(f"savevm {qemu.SNAPSHOT}")
            return True
        finally:
            process.kill()
            process.wait()


def adopt(places: Places, name: str, state: HostState) -> str:
    """Make a machine that was started from the snapshot the host `name`: host name, host key, clock.

    The machine id stays the template's: a running system cannot change it.

    Returns its new public host key. `state` still holds the template's.
    """
    folder = places.host(name).folder
    private = folder / "ssh_host_ed25519_key"
    public = ensure_pair(private, f"root@{name}")
    script = f"""set -e
umask 077
date -u -s @{time.time():.3f} > /dev/null
hostnamectl hostname {name}
sed -i 's/^127.0.1.1 .*/127.0.1.1 {name}/' /etc/hosts
cat > /etc/ssh/ssh_host_ed25519_key.new <<'KEY'
{private.read_text()}KEY
echo '{public} root@{name}' > /etc/ssh/ssh_host_ed25519_key.pub
mv /etc/ssh/ssh_host_ed25519_key.new /etc/ssh/ssh_host_ed25519_key
chmod 644 /etc/ssh/ssh_host_ed25519_key.pub
systemctl reload ssh
"""
    # On standard input: a private key has no place among a command's words.
    done = remote.ssh(places, state, "template", "sudo -n bash -s", 120, script.encode())
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace")
        raise KitError(
            failure("sim.boot", f"simulated host {name}", "the snapshot to take its name", said, qemu.AGAIN), ExitCode.INTERNAL
        )
    return public
