"""The qemu machine: kept in, reachable on loopback only; its spec and its simulated processors fit the real ones."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from kit.errors import KitError
from kit.sim import declare
from kit.sim.hardware import cpu_tree
from kit.sim.hardware import profile as profiles
from kit.sim.machine import qemu
from kit.sim.model import HostState
from kit.sim.rootfs.debian import layer_name, packages_for
from kit.spec.model import HostSpec


def _command(*, load: bool = True, accelerator: qemu.Accelerator = "tcg") -> list[str]:
    return qemu.command(Path("/d"), Path("/k"), Path("/i"), Path("/m"), 2222, accelerator, load=load)


def test_nothing_of_the_machine_is_reachable_but_ssh_on_loopback():
    words = _command()
    network = words[words.index("-netdev") + 1].split(",")
    assert "restrict=on" in network
    assert [w for w in network if w.startswith("hostfwd=")] == ["hostfwd=tcp:127.0.0.1:2222-10.0.2.15:22"]
    assert "-nodefaults" in words


def test_every_processor_and_all_memory_is_in_one_node():
    words = _command()
    nodes = [words[i + 1] for i, w in enumerate(words) if w == "-numa"]
    total = qemu.PACKAGES * qemu.CORES
    assert nodes == [
        f"node,nodeid=0,cpus=0-{total // 2 - 1},memdev=m0",
        f"node,nodeid=1,cpus={total // 2}-{total - 1},memdev=m1",
    ]


def test_the_snapshot_is_loaded_only_when_asked_for():
    assert _command()[-2:] == ["-loadvm", qemu.SNAPSHOT]
    assert "-loadvm" not in _command(load=False)
    assert "host" in _command(accelerator="kvm")


def test_a_panic_at_the_first_boot_ends_the_machine_instead_of_waiting():
    words = _command(load=False)
    assert "-no-reboot" in words
    assert {"panic=-1", "no_timer_check"} <= set(words[words.index("-append") + 1].split())
    assert "-no-reboot" not in _command(), "a provisioned machine reboots"


def test_the_profile_on_the_machines_own_processors():
    loaded = profiles.for_machine(profiles.load("b300-4"), qemu.PACKAGES, qemu.CORES)
    files = cpu_tree.cpu_files(loaded.cpu)
    assert files["online"] == f"0-{qemu.PACKAGES * qemu.CORES - 1}"
    assert files["cpu1/topology/thread_siblings_list"] == "1"
    nodes = cpu_tree.node_files(loaded.cpu, 1 << 20)
    assert [gpu.cpus for gpu in loaded.gpus] == [nodes[f"node{gpu.numa_node}/cpulist"] for gpu in loaded.gpus]
    alike = cpu_tree.cpu_files(profiles.for_machine(profiles.load("pct-off"), qemu.PACKAGES, qemu.CORES).cpu)
    assert {text for path, text in alike.items() if path.endswith("cpuinfo_max_freq")} == {"2300000"}


def test_its_spec_declares_what_the_machine_has():
    state = HostState(
        name="q",
        profile="b300-4",
        runtime="qemu",
        index=0,
        address="127.0.0.1",
        port=2222,
        host_key="ssh-ed25519 " + "A" * 68,
        machine_boot_id="b",
        supervisor_pid=1,
        supervisor_start=1,
    )
    spec = HostSpec.model_validate(declare.host_spec(state, Path("/k"), 8192, 16384))
    loaded = profiles.for_machine(profiles.load("b300-4"), qemu.PACKAGES, qemu.CORES)
    fast = sum(cpu_tree.max_khz(loaded.cpu, core) == loaded.cpu.fast_khz for core in range(loaded.cpu.cores))
    assert (spec.cpu.physical_cores, spec.cpu.fast_cores.count) == (loaded.cpu.cores, fast)
    assert spec.memory.memlock_kib == "unlimited"
    assert spec.memory.huge_pages.count > 0
    assert spec.connection.port == 2222


def test_its_debian_has_a_kernel_and_is_another_layer():
    assert "linux-image-cloud-amd64" in packages_for("qemu")
    assert layer_name(packages_for("qemu")) != layer_name(packages_for("nspawn"))


@pytest.mark.parametrize(("answer", "fails"), [("", False), ("Error: no space", True)])
def test_words_from_the_monitor_mean_that_a_command_failed(tmp_path, answer, fails):
    path = tmp_path / "qmp"
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        link, _ = server.accept()
        with link, link.makefile("rw") as lines:
            for said in ({"QMP": {}}, {"return": {}}):
                lines.write(json.dumps(said) + "\n")
                lines.flush()
                lines.readline()
            lines.write(json.dumps({"event": "STOP"}) + "\n" + json.dumps({"return": answer}) + "\n")
            lines.flush()

    thread = threading.Thread(target=serve)
    thread.start()
    monitor = qemu.Monitor(path)
    try:
        if fails:
            with pytest.raises(KitError, match="no space"):
                monitor.human("savevm ready")
        else:
            monitor.human("savevm ready")
    finally:
        thread.join()
        server.close()
