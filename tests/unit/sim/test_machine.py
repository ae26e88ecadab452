"""What the simulator reads of the control machine, on texts of machines we do not have; and the supervisor, really run."""

from __future__ import annotations

import ast
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kit import procfs
from kit.errors import KitError
from kit.paths import ROOT
from kit.sim import leftovers, states
from kit.sim.commands import run
from kit.sim.hardware.profile import PROFILES
from kit.sim.hardware.stubs_build import newest_libc
from kit.sim.locks import exclusive
from kit.sim.machine import cgroups, network, nspawn
from kit.sim.model import HostState
from kit.sim.places import Places, veth
from kit.sim.rootfs import layer, mounts
from kit.sim.rootfs.debian import mirror
from tests.cli import PROGRAM

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
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


def test_what_is_mounted_below_a_folder_is_unmounted_inside_out():
    info = (
        "30 1 0:5 / /a/root rw - overlay overlay rw\n31 1 0:6 / /a/root/proc rw - proc proc rw\n"
        "32 1 0:6 / /a/rooted rw - proc proc rw\n33 1 0:6 / /a/my\\040root rw - proc proc rw\n"
    )
    assert leftovers.mounts_under(Path("/a/root"), info) == [Path("/a/root/proc"), Path("/a/root")]
    assert leftovers.mounts_under(Path("/a/my root"), info) == [Path("/a/my root")]
    assert leftovers.mounts_under(Path("/a/ro"), info) == []


def test_a_process_of_a_host_is_told_from_one_that_only_names_its_folder():
    hosts = Path("/c/sim/hosts")
    machine = "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
    inside = "90 80 0:44 / / rw - overlay overlay rw,lowerdir=/c/sim/layers/a,upperdir=/c/sim/hosts/n/upper,workdir=/c/w\n"
    copied = "90 80 254:0 /c/sim/hosts/n/root / rw - ext4 /dev/vda rw\n"
    assert leftovers.host_of(hosts, ["python3", "-I", "/k/supervisor.py", "/c/sim/hosts/n/supervisor.json"], machine) == "n"
    assert leftovers.host_of(hosts, ["systemd-nspawn", "--directory", "/c/sim/hosts/n/root"], machine) == "n"
    assert leftovers.host_of(hosts, ["/sbin/init"], inside) == "n"
    assert leftovers.host_of(hosts, ["/sbin/init"], copied) == "n"
    assert leftovers.host_of(hosts, ["tail", "-f", "/c/sim/hosts/n/console.log"], machine) is None
    assert leftovers.host_of(Path("/other/sim/hosts"), ["/sbin/init"], inside) is None


@needs_root
def test_what_is_contained_leaves_no_mount_and_no_process_when_it_is_killed(tmp_path):
    (tmp_path / "shm").mkdir()
    script = f"mount --bind /dev/shm {tmp_path}/shm && touch {tmp_path}/mounted && setsid sleep 300.4242"
    outer = subprocess.Popen(
        [sys.executable, "-c", f"from kit.sim.commands import *; run(contained('sh', '-c', {script!r}), 400)"]
    )
    _until((tmp_path / "mounted").exists)
    assert leftovers.mounts_under(tmp_path, leftovers.MOUNTINFO.read_text()) == []
    outer.kill()
    outer.wait()
    _until(lambda: subprocess.run(["pgrep", "-f", "sleep 300.4242"], capture_output=True, check=False).returncode == 1)


@needs_root
def test_a_tree_with_the_machines_own_memory_mounted_in_it_is_removed_and_that_memory_kept(tmp_path):
    folder = tmp_path / "debian-x.new"
    (folder / "dev/shm").mkdir(parents=True)
    (folder / "etc").mkdir()
    run(["mount", "--bind", "/dev/shm", folder / "dev/shm"])
    kept = Path(f"/dev/shm/kept-{os.getpid()}")
    kept.touch()
    try:
        mounts.delete(folder)
        assert not folder.exists()
        assert kept.exists()
    finally:
        kept.unlink(missing_ok=True)


def test_a_build_that_was_cut_off_is_swept_and_one_under_way_is_not(tmp_path):
    places = Places(tmp_path)
    cut, busy = (places.layers / f"debian-{name}.new" for name in ("cut", "busy"))
    for folder in (cut, busy, places.layers / "debian-whole"):
        folder.mkdir(parents=True)
    with exclusive(places.building(places.layers / "debian-busy")):
        layer.sweep(places)
        assert leftovers.told(tmp_path) == [f"at work: a command holds {places.building(places.layers / 'debian-busy')}"]
    assert sorted(path.name for path in places.layers.iterdir()) == ["debian-busy.new", "debian-whole"]
    assert leftovers.told(tmp_path) == []


def _until(what) -> None:
    deadline = time.monotonic() + 20
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


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


def test_every_failure_of_the_simulator_has_a_next_step():
    bare = [
        f"{path.name}:{node.lineno}"
        for path in sorted((ROOT / "kit/sim").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "failure"
        if len(node.args) < 5 and "next" not in {keyword.arg for keyword in node.keywords}
    ]
    assert bare == []


def test_the_help_of_sim_up_names_each_profile():
    assert {path.stem for path in PROFILES.glob("*.yml")} <= set(re.findall(r"[\w-]+", run([PROGRAM, "--help", "sim.up"])))
