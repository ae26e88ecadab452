"""The simulated hardware from inside a host: each thing a kit reads or writes answers as the real one does."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest


def test_kernel_module_and_library_versions(sim_host, on_host):
    name = sim_host("b300-4")
    assert on_host(name, "cat /sys/module/nvidia/version").stdout == "580.95.05\n"
    assert "580.95.05" in on_host(name, "cat /proc/driver/nvidia/version").stdout
    assert on_host(name, "nvidia-smi --query-gpu=driver_version --format=csv,noheader -i 0").stdout == "580.95.05\n"
    assert on_host(name, "nv-fabricmanager --version").stdout == "Fabric Manager version is : 580.95.05\n"


def test_a_mismatch_looks_as_it_does(sim_host, on_host):
    name = sim_host("driver-mismatch")
    done = on_host(name, "nvidia-smi", check=False)
    assert done.returncode == 18
    assert "Driver/library version mismatch" in done.stdout
    assert on_host(name, "readlink /usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").stdout == "libnvidia-ml.so.580.105.08\n"
    assert on_host(name, "cat /sys/module/nvidia/version").stdout == "580.95.05\n"


def test_processors_are_the_declared_ones(sim_host, on_host):
    name = sim_host("b300-4")
    fast = on_host(name, "grep -l 4600000 /sys/devices/system/cpu/cpu*/cpufreq/cpuinfo_max_freq | wc -l").stdout
    assert fast == "32\n"
    listing = on_host(name, "lscpu").stdout
    assert "CPU(s):              256\n" in listing.replace("CPU(s):                  ", "CPU(s):              ")
    assert on_host(name, "nproc").stdout != "256\n"


def test_kernel_settings_can_be_written_and_touch_nothing_underneath(sim_host, on_host):
    name = sim_host("b300-4")
    real = Path("/proc/sys/vm/max_map_count")
    underneath = real.read_text()
    on_host(name, "sudo sysctl -q -w vm.max_map_count=99999")
    assert on_host(name, "cat /proc/sys/vm/max_map_count").stdout == "99999\n"
    on_host(name, "sudo sysctl -q -w vm.max_map_count=65530")
    assert real.read_text() == underneath


def test_interrupts_follow_a_write_in_both_forms(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    on_host(name, "sudo systemctl stop irqbalance; echo 4-7 | sudo tee /proc/irq/40/smp_affinity_list; sleep 0.2")
    read = "cat /proc/irq/40/smp_affinity_list /proc/irq/40/effective_affinity_list /proc/irq/40/smp_affinity | tr '\\n' ' '"
    zeros = ",".join(["00000000"] * 7)
    assert on_host(name, read).stdout == f"4-7 4-7 {zeros},000000f0 "
    on_host(name, f"echo {zeros},00000003 | sudo tee /proc/irq/40/smp_affinity; sleep 0.2")
    assert on_host(name, read).stdout == f"0-1 0-1 {zeros},00000003 "
    on_host(name, "echo nonsense | sudo tee /proc/irq/40/smp_affinity_list; sleep 0.2")
    assert on_host(name, read).stdout == f"0-1 0-1 {zeros},00000003 "


def test_irqbalance_leaves_banned_cpus_alone(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    on_host(name, "echo IRQBALANCE_BANNED_CPULIST=0-200 | sudo tee -a /etc/default/irqbalance; sudo systemctl restart irqbalance")
    deadline = time.monotonic() + 30
    while True:
        found = on_host(name, "cat /proc/irq/*/effective_affinity_list").stdout.split()
        assert len(found) == 64
        if min(int(cpu) for cpu in found) > 200:
            return
        assert time.monotonic() < deadline, found
        time.sleep(0.2)


@pytest.mark.parametrize("profile", ["b300-4", "pct-off"])
def test_priority_core_turbo(fresh_sim_host, on_host, profile):
    name = fresh_sim_host(profile)
    tool = "sudo intel-speed-select"
    info = on_host(name, f"{tool} turbo-freq info -l 0 2>&1", check=False)
    if profile == "pct-off":
        assert info.returncode != 0
        assert "high-priority-cores-count" not in info.stdout
        assert on_host(name, f"{tool} -c 0-3 turbo-freq enable 2>&1", check=False).returncode != 0
        return
    # The table is repeated for each of the four power domains, with the package's count each time.
    assert info.stdout.count("bucket-0") == 4
    assert info.stdout.count("high-priority-cores-count:8\n") == 4
    assert "high-priority-max-frequency(MHz):4600\n" in info.stdout
    on_host(name, f"{tool} -c 3,131 core-power assoc -c 0 && {tool} -c 0-2 core-power assoc -c 3")
    on_host(name, f"{tool} core-power enable && {tool} -c 3,131 turbo-freq enable")
    classes = on_host(name, f"{tool} -f json -c 0-3 core-power get-assoc 2>&1 >/dev/null").stdout
    assert [entry["get-assoc"]["clos"] for entry in json.loads(classes).values()] == ["3", "3", "3", "0"]
    status = on_host(name, f"{tool} core-power info 2>&1").stdout
    assert status.count("clos-enable-status:enabled") == 4
    assert on_host(name, f"{tool} core-power disable 2>&1", check=False).returncode != 0, "turbo-freq needs core-power"


def test_the_kernel_log_reaches_the_journal_and_dmesg(fresh_sim_host, on_host):
    name = fresh_sim_host("remap-failed")
    assert "Xid (PCI:0000:43:00): 64" in on_host(name, "sudo journalctl -k -b -o short-monotonic --no-pager").stdout
    on_host(name, "sudo /opt/sim/bin/kernel-log 'NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.'; sleep 0.3")
    for command in ("sudo journalctl -k -b --no-pager", "sudo dmesg"):
        assert "NVRM: Xid (PCI:0000:1b:00): 79" in on_host(name, command).stdout
    assert on_host(name, "dmesg", check=False).returncode != 0


def test_packages_can_be_held_and_an_upgrade_waits(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")
    policy = on_host(name, "apt-cache policy nvidia-driver").stdout
    assert "Installed: 580.95.05-1\n" in policy
    assert "Candidate: 580.105.08-1\n" in policy
    on_host(name, "sudo apt-mark hold nvidia-driver docker.io")
    upgrade = on_host(name, "sudo apt-get -s dist-upgrade").stdout
    assert "Inst nvidia-fabricmanager" in upgrade
    assert "Inst nvidia-driver" not in upgrade
    on_host(name, "sudo apt-mark unhold docker.io && sudo apt-get -qq -y install docker.io 2>&1")
    assert on_host(name, "dpkg-query -W -f '${Version}' docker.io").stdout == "28.5.1-1"


def test_docker_reads_its_file_as_dockerd_does(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-4")

    def configure(text: str, verb: str, check: bool = True) -> int:
        command = f"sudo mkdir -p /etc/docker; echo '{text}' | sudo tee /etc/docker/daemon.json; sudo systemctl {verb} docker"
        return on_host(name, command, check=check).returncode

    def info(field: str) -> str:
        return on_host(name, f"sleep 0.3; sudo docker info --format '{{{{{field}}}}}'").stdout.strip()

    assert info(".LiveRestoreEnabled") == "false"
    configure('{"live-restore": true, "log-driver": "local"}', "reload")
    assert info(".LiveRestoreEnabled") == "true"
    assert info(".LoggingDriver") == "json-file", "the log driver changes only with a restart"
    configure('{"live-restore": true, "log-driver": "local"}', "restart")
    assert info(".LoggingDriver") == "local"
    for wrong in ("{not json", '{"live-restore": "yes"}', '{"no-such-option": 1}', '{"log-opts": {"max-file": 5}}'):
        assert configure(wrong, "restart", check=False) != 0
        assert on_host(name, "sudo dockerd --validate", check=False).returncode == 1


def test_cdi_devices_appear_where_docker_finds_them(fresh_sim_host, on_host):
    name = fresh_sim_host("b300-3")
    on_host(name, "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml")
    listed = on_host(name, "nvidia-ctk cdi list").stdout.split()
    assert listed == ["nvidia.com/gpu=0", "nvidia.com/gpu=1", "nvidia.com/gpu=2", "nvidia.com/gpu=all"]
    found = json.loads(on_host(name, "sudo docker info --format '{{json .DiscoveredDevices}}'").stdout)
    assert [device["ID"] for device in found] == listed


def test_persistence_is_off_where_the_profile_says_so(sim_host, on_host):
    read = "nvidia-smi --query-gpu=persistence_mode,power.limit --format=csv,noheader | sort -u"
    assert on_host(sim_host("b300-4"), read).stdout == "Enabled, 1100.00 W\n"
    assert on_host(sim_host("persistence-lost"), read).stdout == "Disabled, 1000.00 W\n"
