"""How a host is started with qemu: its processors, its network, and a little of the machine protocol.

A machine of its own proves what a container cannot: cpusets, limits, huge pages, NUMA, its own kernel settings.
"""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any, Literal

from kit.errors import ExitCode, KitError, failure

Accelerator = Literal["kvm", "tcg"]
PACKAGES, CORES = 2, 4
"""Eight processors in two NUMA nodes: each more slows all of an emulated machine."""
MEMORY_MIB = 2048
GUEST_ADDRESS = "10.0.2.15"
"""Of qemu's own user network, alike for every machine, so that one snapshot fits all."""
SNAPSHOT = "ready"
AGAIN = "run it again; if it says the same, report it with the version of qemu"


def command(
    disk: Path, kernel: Path, initrd: Path, monitor: Path, port: int, accelerator: Accelerator, *, load: bool
) -> list[str]:
    """argv of qemu. ssh of the machine is at 127.0.0.1:`port`; ``restrict=on`` keeps everything else in.

    ``load``: go on from the snapshot; otherwise boot, and end when the kernel panics. An emulated timer may be late on a busy
    machine, which the kernel's check of it would take for a broken one: ``no_timer_check``.
    """
    cpus = PACKAGES * CORES
    half, share = cpus // 2, MEMORY_MIB // 2
    return [
        "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-display", "none", "-machine", "q35", "-accel",
        "kvm" if accelerator == "kvm" else "tcg,thread=multi", "-cpu", "host" if accelerator == "kvm" else "max",
        "-m", f"{MEMORY_MIB}M", "-smp", f"{cpus},sockets={PACKAGES},cores={CORES},threads=1",
        "-object", f"memory-backend-ram,id=m0,size={share}M", "-object", f"memory-backend-ram,id=m1,size={share}M",
        "-numa", f"node,nodeid=0,cpus=0-{half - 1},memdev=m0", "-numa", f"node,nodeid=1,cpus={half}-{cpus - 1},memdev=m1",
        "-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe", "-netdev",
        f"user,id=n0,restrict=on,hostfwd=tcp:127.0.0.1:{port}-{GUEST_ADDRESS}:22", "-device", "virtio-net-pci,netdev=n0",
        "-device", "virtio-rng-pci", "-serial", "stdio", "-monitor", "none", "-qmp", f"unix:{monitor},server=on,wait=off",
        "-kernel", str(kernel), "-initrd", str(initrd), "-append",
        "root=/dev/vda rw console=ttyS0 net.ifnames=0 systemd.unified_cgroup_hierarchy=1 quiet no_timer_check panic=-1",
        *(["-loadvm", SNAPSHOT] if load else ["-no-reboot"]),
    ]  # fmt: skip


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody has now."""
    with socket.socket() as link:
        link.bind(("127.0.0.1", 0))
        port: int = link.getsockname()[1]
        return port


class Monitor:
    """A running machine's control socket."""

    def __init__(self, path: Path, timeout_s: float = 10) -> None:
        self._link = socket.socket(socket.AF_UNIX)
        self._link.settimeout(600)
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                self._link.connect(str(path))
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
        self._lines = self._link.makefile("rw")
        self._lines.readline()
        self._ask("qmp_capabilities", {})

    def _ask(self, what: str, arguments: dict[str, Any]) -> Any:
        self._lines.write(json.dumps({"execute": what, "arguments": arguments}) + "\n")
        self._lines.flush()
        while True:
            answer = json.loads(self._lines.readline())
            if "return" in answer:
                return answer["return"]
            if "error" in answer:
                raise KitError(failure("sim.qemu", what, "done", answer["error"]["desc"], AGAIN), ExitCode.INTERNAL)

    def human(self, line: str) -> None:
        """A command as people type it; any words in answer to these mean that it failed."""
        said = self._ask("human-monitor-command", {"command-line": line})
        if said.strip():
            raise KitError(failure("sim.qemu", line, "no complaint", said.strip(), AGAIN), ExitCode.INTERNAL)

    def quit(self) -> None:
        """End the machine at once."""
        self._lines.write(json.dumps({"execute": "quit"}) + "\n")
        self._lines.flush()
        self._link.close()
