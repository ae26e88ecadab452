"""What the simulator reads of the control machine, on texts of machines we do not have; and the supervisor, really run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kit import procfs
from kit.errors import KitError
from kit.sim import states
from kit.sim.commands import run
from kit.sim.hardware.stubs_build import newest_libc
from kit.sim.locks import exclusive
from kit.sim.machine import cgroups, network, nspawn
from kit.sim.model import HostState
from kit.sim.places import Places, veth
from kit.sim.rootfs import mounts
from kit.sim.rootfs.debian import mirror

V1 = """tmpfs /sys/fs/cgroup tmpfs rw 0 0
cgroup /sys/fs/cgroup/memory cgroup rw,memory 0 0
cgroup /sys/fs/cgroup/systemd cgroup rw,name=systemd 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,nsdelegate 0 0
"""
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n"


def test_pure_version_2():
    at = cgroups.layout(V2)
    assert at.pure_v2
    assert cgroups.folders(at, "x") == [Path("/sys/fs/cgroup/x")]


def test_mixed_hierarchies_each_get_a_group():
    at = cgroups.layout(V1)
    assert not at.pure_v2
    assert [str(p) for p in cgroups.folders(at, "x")] == [
        "/sys/fs/cgroup/unified/x",
        "/sys/fs/cgroup/systemd/x",
        "/sys/fs/cgroup/memory/x",
    ]


def test_a_limit_that_cannot_be_set_is_an_error(tmp_path):
    at = cgroups.Layout(unified=tmp_path, named=None, memory=None, pure_v2=False)
    with pytest.raises(KitError, match="memory"):
        cgroups.create(at, "x", 1024)


def test_version_2_limit_is_written_where_the_host_sees_it(tmp_path):
    (tmp_path / "cgroup.subtree_control").write_text("cpu memory")
    at = cgroups.Layout(unified=tmp_path, named=None, memory=tmp_path, pure_v2=True)
    late = cgroups.create(at, "x", 2)
    assert (tmp_path / "x/memory.max").read_text() == str(2 << 20)
    assert late == [[str(tmp_path / "x/payload/memory.max"), str(2 << 20)]]


def _link(name: str, address: str, prefix: int = 24) -> dict:
    return {"ifname": name, "addr_info": [{"family": "inet", "local": address, "prefixlen": prefix}]}


def test_our_subnet_elsewhere_is_a_collision():
    assert network.collisions([_link("eth1", "169.254.77.9")], []) == ["169.254.77.9/24 on eth1"]
    assert network.collisions([], [{"dst": "169.254.77.128/25", "dev": "tun0"}]) == ["route 169.254.77.128/25 on tun0"]


def test_our_own_bridge_and_wider_routes_are_none():
    links = [_link("b300kit0", "169.254.77.1"), _link("eth0", "192.0.2.2"), {"ifname": "lo"}]
    routes = [
        {"dst": "default", "dev": "eth0"},
        {"dst": "169.254.0.0/16", "dev": "eth0"},
        {"dst": "169.254.77.0/24", "dev": "b300kit0"},
    ]
    assert network.collisions(links, routes) == []


def test_interface_names_fit_the_kernel():
    assert len(veth(250)) <= 15


def test_the_mirror_is_debians_own_archive():
    text = "http://m.example/debian-security/|Debian-Security|main\nhttp://m.example/debian/|Debian|main\n"
    assert mirror(text) == "http://m.example/debian/"
    assert mirror("http://u.example/ubuntu/|Ubuntu|main\n") is None


def test_newest_libc_is_by_number_not_by_text():
    assert newest_libc("x GLIBC_2.9 y\nz GLIBC_2.34 w\n") == (2, 34)
    assert newest_libc("") == (0,)


def test_mounted_is_exactly_there():
    info = "30 1 0:5 / /a/root rw - overlay overlay rw\n31 1 0:6 / /a/root/proc rw - proc proc rw\n"
    assert mounts.is_mounted(Path("/a/root"), info)
    assert not mounts.is_mounted(Path("/a"), info)


def test_nspawn_shares_nothing_it_should_not():
    words = nspawn.command(Path("/r"), "n", 10)
    assert "--network-namespace-path=/run/netns/b300kit-sim-10" in words
    assert not any(word.startswith(("--bind", "--private-users=no")) for word in words)


def _state(**changes) -> HostState:
    usual = {
        "name": "n",
        "profile": "b300-4",
        "runtime": "nspawn",
        "index": 10,
        "address": "169.254.77.10",
        "host_key": "ssh-ed25519 AAAA",
        "machine_boot_id": procfs.boot_id(),
        "supervisor_pid": os.getpid(),
        "supervisor_start": procfs.started(os.getpid()),
    }
    return HostState.model_validate({**usual, **changes})


def test_running_is_this_boot_this_process_and_not_another_with_its_number():
    assert states.running(_state())
    assert not states.running(_state(machine_boot_id="00000000-0000-0000-0000-000000000000"))
    assert not states.running(_state(supervisor_start=1))


def test_a_zombie_does_not_run():
    child = subprocess.Popen(["true"])
    deadline = time.monotonic() + 5
    while procfs.started(child.pid) is not None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert procfs.started(child.pid) is None
    child.wait()


def test_a_torn_state_file_is_no_state(tmp_path):
    places = Places(tmp_path)
    places.host("n").folder.mkdir(parents=True)
    places.host("n").state.write_text('{"name": "n"')
    assert states.read(places, "n") is None
    states.write(places, _state())
    assert states.read_all(places) == [_state()]


def test_a_failed_command_says_what_it_printed():
    with pytest.raises(KitError, match="No such file"):
        run(["ls", "/nowhere-at-all"])


def test_the_lock_excludes_another_process(tmp_path):
    lock = str(tmp_path / "l")
    script = f"from pathlib import Path; from kit.sim.locks import exclusive\nwith exclusive(Path({lock!r})): print('in')"
    with exclusive(tmp_path / "l"):
        other = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        time.sleep(0.5)
        assert other.poll() is None
    assert other.communicate(timeout=10)[0] == "in\n"


def _supervise(tmp_path: Path, script: str, late: list[list[str]] | None = None) -> subprocess.Popen[bytes]:
    config = {
        "command": ["sh", "-c", script],
        "console": str(tmp_path / "console"),
        "log": str(tmp_path / "log"),
        "cgroups": [],
        "late_writes": late or [],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    return subprocess.Popen([sys.executable, "-I", str(nspawn.SUPERVISOR), str(tmp_path / "config")], stderr=subprocess.DEVNULL)


def test_the_supervisor_starts_a_host_again_after_a_reboot_and_ends_with_it(tmp_path):
    script = f"echo up; [ -e {tmp_path}/once ] && exit 0; touch {tmp_path}/once; exit 133"
    assert _supervise(tmp_path, script).wait(10) == 0
    assert (tmp_path / "console").read_text() == "up\nup\n"


def test_the_supervisor_reports_a_host_that_failed(tmp_path):
    assert _supervise(tmp_path, "exit 7").wait(10) == 7


def test_the_supervisor_takes_its_host_with_it(tmp_path):
    process = _supervise(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 60")
    deadline = time.monotonic() + 10
    while not (tmp_path / "pid").exists() or not (tmp_path / "pid").read_text().strip():
        assert time.monotonic() < deadline
        time.sleep(0.01)
    pid = int((tmp_path / "pid").read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    assert procfs.started(pid) is None


def test_a_late_write_waits_for_its_file(tmp_path):
    target = tmp_path / "limit"
    assert _supervise(tmp_path, f"sleep 0.2; touch {target}; sleep 0.5", [[str(target), "42"]]).wait(10) == 0
    assert target.read_text() == "42"
