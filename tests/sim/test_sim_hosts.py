"""The simulated host as a host: boots, can be logged in to, reboots, goes away whole."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit import procfs
from kit.errors import ExitCode, KitError
from kit.paths import ROOT
from kit.sim import flow, leftovers, states
from kit.sim.machine.cgroups import folders, group_name, machine_layout
from kit.sim.places import Places, netns, veth
from kit.sim.rootfs import layer
from kit.spec.model import HostSpec
from tests.cli import invoke


def test_login_sudo_and_a_healthy_system(sim_host, on_host):
    name = sim_host("b300-4")
    assert on_host(name, "sudo -n id -u").stdout == "0\n"
    assert on_host(name, "hostname").stdout == f"{name}\n"
    assert on_host(name, "systemctl is-system-running").stdout == "running\n"
    assert on_host(name, "systemctl --failed --no-legend").stdout == ""


def test_root_may_not_log_in_and_an_unknown_key_neither(sim_host, on_host, tmp_path):
    name = sim_host("b300-4")
    state = states.read(Places.here(), name)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    for user, key in (("root", Places.here().client_key), ("ops", tmp_path / "k")):
        done = subprocess.run(
            [
                "ssh", "-i", str(key), "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes", "-o", f"HostKeyAlias={name}",
                "-o", "UserKnownHostsFile=none", "-o", f"KnownHostsCommand=/usr/bin/echo {name} {state.host_key}",
                f"{user}@{state.address}", "true",
            ],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 255
        assert "Permission denied" in done.stderr


def test_up_again_is_the_same_host(sim_host, on_host):
    name = sim_host("b300-4")
    boot = on_host(name, "cat /proc/sys/kernel/random/boot_id").stdout
    again = flow.up(name, "b300-4")
    assert again.created is False
    assert again.answers is True
    assert on_host(name, "cat /proc/sys/kernel/random/boot_id").stdout == boot


def test_another_profile_under_the_same_name_is_refused(sim_host):
    name = sim_host("b300-4")
    with pytest.raises(KitError) as caught:
        flow.up(name, "mig-on")
    assert caught.value.exit_code is ExitCode.USAGE
    assert "sim.down" in caught.value.failures[0].next


def test_a_stopped_host_is_not_silently_made_another(fresh_sim_host, on_host):
    name = fresh_sim_host("low-ram")
    on_host(name, "sudo systemctl poweroff", check=False)
    deadline = time.monotonic() + 60
    while states.running(states.read(Places.here(), name)):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    with pytest.raises(KitError) as caught:
        flow.up(name)
    told = caught.value.failures[0]
    assert caught.value.exit_code is ExitCode.USAGE
    assert told.found == "already there, stopped, with low-ram on nspawn"
    assert "--profile low-ram" in told.next
    again = flow.up(name, "low-ram")
    assert (again.created, again.profile) == (True, "low-ram")


def test_the_login_line_works_as_it_is_told_and_only_with_the_hosts_own_key(sim_host):
    name = sim_host("b300-4")
    told = invoke("sim.up", "--name", name)
    line = told.document["result"]["host"]["login"]
    done = subprocess.run(["sh", "-c", f"{line} -o BatchMode=yes hostname"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, f"{name}\n"), done.stderr
    other = line.replace(f"HostKeyAlias={name}", "HostKeyAlias=another")
    done = subprocess.run(["sh", "-c", f"{other} -o BatchMode=yes true"], capture_output=True, text=True, check=False)
    assert done.returncode == 255


def test_down_of_a_host_that_is_not_there_says_which_are(sim_host):
    name = sim_host("b300-4")
    ran = invoke("sim.down", "--name", "nothere")
    assert (ran.code, ran.codes) == (2, ["sim.no_such_host"])
    assert name in ran.document["failures"][0]["expected"]
    assert "going down" not in ran.err


@pytest.mark.parametrize("name", ["Up", "a/b", "../x", "-x", ""])
def test_a_hostile_name_is_refused_before_anything_is_made(name):
    with pytest.raises(KitError) as caught:
        flow.up(name, "b300-4")
    assert caught.value.exit_code is ExitCode.USAGE


def test_its_spec_is_usable_at_once(sim_host):
    from ruamel.yaml import YAML

    name = sim_host("b300-4")
    folder = Places.here().fleet
    spec = HostSpec.model_validate(YAML(typ="safe").load((folder / f"hosts/{name}.yml").read_text()))
    assert spec.name == name
    assert name in YAML(typ="safe").load((folder / "fleet.yml").read_text())["groups"]["sim"]


def test_a_reboot_is_a_new_boot_and_loses_what_hardware_loses(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    read = (
        "cat /proc/sys/kernel/random/boot_id /proc/sys/vm/swappiness /sys/devices/system/cpu/cpu3/cpufreq/scaling_governor "
        "/proc/irq/30/effective_affinity_list /sys/kernel/mm/transparent_hugepage/enabled; "
        "nvidia-smi -i 0 --query-gpu=power.limit,clocks.sm,persistence_mode --format=csv,noheader; "
        "sudo intel-speed-select perf-profile info -l 0 2>&1 | grep -m1 turbo-freq:"
    )
    fresh = on_host(name, read).stdout.splitlines()
    assert fresh[1:] == [
        "60",
        "powersave",
        "30",
        "[always] madvise never",
        "1100.00 W, 345 MHz, Enabled",
        "          speed-select-turbo-freq:disabled",
    ]
    on_host(
        name,
        "sudo sysctl -q -w vm.swappiness=10 && "
        "echo performance | sudo tee /sys/devices/system/cpu/cpu3/cpufreq/scaling_governor && "
        "echo 200 | sudo tee /proc/irq/30/smp_affinity_list && "
        "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled && "
        "sudo nvidia-smi -pl 900 && sudo nvidia-smi -lgc 2032,2032 && sudo intel-speed-select turbo-freq enable && sleep 0.2",
    )
    changed = on_host(name, read).stdout.splitlines()
    assert changed == [
        fresh[0],
        "10",
        "performance",
        "200",
        "always [madvise] never",
        "900.00 W, 2032 MHz, Enabled",
        "          speed-select-turbo-freq:enabled",
    ]
    on_host(name, "echo kept | sudo tee /etc/kept; sudo systemctl reboot", check=False)
    _wait_for_another_boot(name, on_host, fresh[0])
    after = on_host(name, read).stdout.splitlines()
    assert after[0] != fresh[0]
    assert after[1:] == fresh[1:]
    assert on_host(name, "cat /etc/kept").stdout == "kept\n"


def _wait_for_another_boot(name, on_host, boot: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        seen = on_host(name, "cat /proc/sys/kernel/random/boot_id && systemctl is-system-running --wait", check=False).stdout
        if seen and seen.splitlines()[0] != boot and "running" in seen:
            return
        time.sleep(0.3)
    pytest.fail(f"{name} did not come back from its reboot")


def test_settings_in_sysctl_d_are_applied_at_boot(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    boot = on_host(name, "cat /proc/sys/kernel/random/boot_id").stdout.strip()
    on_host(name, "echo vm.max_map_count=262144 | sudo tee /etc/sysctl.d/90-x.conf; sudo systemctl reboot", check=False)
    _wait_for_another_boot(name, on_host, boot)
    assert on_host(name, "cat /proc/sys/vm/max_map_count").stdout == "262144\n"


def test_the_memory_limit_is_real_and_the_host_can_read_it(sim_host, on_host):
    name = sim_host("low-ram")
    found = on_host(
        name, "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null", check=False
    ).stdout
    assert found.splitlines() == [str(1024 << 20)]
    done = on_host(name, 'python3 -c "x = bytearray(1200 << 20)"', check=False)
    assert done.returncode != 0


def _traces(index: int) -> list[str]:
    found = [str(folder) for folder in folders(machine_layout(), group_name(index)) if folder.exists()]
    links = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    found += [veth(index)] if f"{veth(index)}@" in links else []
    return found + ([netns(index)] if netns(index) in spaces.split() else [])


def _processes_of(root: Path) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if str(root) in words:
                found.append(words.replace("\0", " "))
    return found


def test_down_leaves_nothing_even_after_its_supervisor_was_killed(fresh_sim_host):
    for kill in (False, True):
        name = fresh_sim_host("b300-4")
        places = Places.here()
        state = states.read(places, name)
        at = places.host(name)
        assert len(_traces(state.index)) >= 3
        assert _processes_of(at.folder)
        if kill:
            os.kill(state.supervisor_pid, signal.SIGKILL)
        removed = flow.down(name)
        assert [gone.name for gone in removed] == [name]
        assert _traces(state.index) == []
        assert _processes_of(at.folder) == []
        assert not at.folder.exists()
        assert str(at.root) not in Path("/proc/self/mounts").read_text()
        assert not (places.fleet / f"hosts/{name}.yml").exists()
        assert flow.down(name) == []


def test_a_supervisor_that_is_told_to_stop_leaves_no_process_of_its_host(fresh_sim_host):
    name = fresh_sim_host("b300-4")
    places = Places.here()
    state = states.read(places, name)
    inside = {process.pid for process in leftovers.processes(places.hosts) if process.host == name} - {state.supervisor_pid}
    assert len(inside) > 5
    os.kill(state.supervisor_pid, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while any(process.host == name for process in leftovers.processes(places.hosts)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_down_finds_a_host_whose_files_are_gone(fresh_sim_host):
    name = fresh_sim_host("b300-4")
    places = Places.here()
    state = states.read(places, name)
    inner = [p.pid for p in leftovers.processes(places.hosts) if p.host == name and p.pid != state.supervisor_pid]
    os.kill(state.supervisor_pid, signal.SIGKILL)
    places.host(name).state.unlink()
    places.host(name).supervisor_config.unlink()
    told = leftovers.told(places.cache)
    assert any(line.startswith(f"simulated host {name}: ") for line in told)
    assert f"mounted: {places.host(name).root}" in told
    assert [gone.name for gone in flow.down(name)] == [name]
    assert not any(procfs.started(pid) for pid in inner)
    assert _traces(state.index) == []
    assert not places.host(name).folder.exists()


def test_a_build_that_is_killed_leaves_no_process_and_its_mount_is_swept(sim_host, tmp_path):
    sim_host("b300-4")
    (debian,) = (Places.here().layers / name for name in states.read_all(Places.here())[0].layers if name.startswith("debian-"))
    build = f"from kit.sim.rootfs.layer import *; kit_layer(Places(Path({str(tmp_path)!r})), Path({str(debian)!r}), print)"
    process = subprocess.Popen([sys.executable, "-c", build], cwd=ROOT)

    def inside() -> list[str]:
        return [words for words in _processes_of(tmp_path) if words.startswith("unshare ")]

    deadline = time.monotonic() + 60
    while not inside():
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.kill()
    process.wait()
    while _processes_of(tmp_path):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert [line.partition(": ")[0] for line in leftovers.told(tmp_path)] == ["mounted"]
    layer.sweep(Places(tmp_path))
    assert leftovers.told(tmp_path) == []
    assert list((tmp_path / "sim/layers").glob("*")) == []


@pytest.fixture
def checkout(tmp_path: Path) -> Iterator[Path]:
    """A checkout without .venv, with what a host and a cut-off build leave: a root that is mounted, the machine's own memory."""
    folder = tmp_path / "my kit"
    (folder / "kit").mkdir(parents=True)
    for name in ("Makefile", "kit/__init__.py", "kit/sim"):
        (folder / name).symlink_to(ROOT / name)
    root = folder / ".cache/sim/hosts/n/root"
    root.mkdir(parents=True)
    subprocess.run(["mount", "--bind", "/dev/shm", root], check=True)
    yield folder
    subprocess.run(["umount", root], check=False, capture_output=True)


def test_make_removes_nothing_under_a_machine_and_says_what_to_do(checkout: Path):
    kept = Path(f"/dev/shm/kept-{os.getpid()}")
    kept.touch()
    try:
        for goal in ("clean", "clean-cache"):
            (checkout / "build").mkdir()
            done = subprocess.run(["make", "-C", checkout, goal], capture_output=True, text=True, check=False)
            assert done.returncode == 2, done.stdout + done.stderr
            assert f"mounted: {checkout}/.cache/sim/hosts/n/root" in done.stderr
            assert "sim.down --all" in done.stderr
            assert (checkout / "build").exists()
            (checkout / "build").rmdir()
            assert kept.exists()
        subprocess.run(["umount", checkout / ".cache/sim/hosts/n/root"], check=True)
        subprocess.run(["make", "-C", checkout, "clean", "clean-cache"], capture_output=True, check=True)
        assert not (checkout / ".cache").exists()
    finally:
        kept.unlink(missing_ok=True)


def test_up_mends_what_a_kill_left_behind(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    os.kill(states.read(Places.here(), name).supervisor_pid, signal.SIGKILL)
    assert flow.up(name, "b300-4").created is True
    assert on_host(name, "systemctl is-system-running").stdout == "running\n"


def test_a_state_from_before_the_machines_reboot_is_stale(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    places = Places.here()
    state = states.read(places, name)
    flow.down(name)
    places.host(name).folder.mkdir(parents=True)
    states.write(places, state.model_copy(update={"machine_boot_id": "0" * 36}))
    assert [h.running for h in flow.status() if h.name == name] == [False]
    assert flow.up(name, "b300-4").created is True
    assert on_host(name, "true").returncode == 0


def test_two_commands_at_once_make_one_host(fresh_sim_host):
    name = fresh_sim_host("b300-4")
    flow.down(name)
    script = f"from kit.sim import flow; print(flow.up({name!r}, 'b300-4').model_dump_json())"
    with ThreadPoolExecutor(2) as pool:
        done = list(
            pool.map(
                lambda _: subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True), range(2)
            )
        )
    assert sorted(json.loads(d.stdout)["created"] for d in done) == [False, True]


def test_hosts_reach_each_other_but_not_the_world(sim_host, on_host):
    one, other = sim_host("b300-4"), sim_host("low-ram")
    address = states.read(Places.here(), other).address
    probe = f"import socket; print(socket.create_connection(('{address}', 22), 5).recv(4).decode())"
    assert on_host(one, f'python3 -c "{probe}"').stdout == "SSH-\n"
    assert "default" not in on_host(one, "ip route").stdout
