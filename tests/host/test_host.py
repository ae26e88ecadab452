"""One assertion a promise, read from the host by other means than the kit's probe: shell tools, not our scripts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from testinfra.host import Host

from kit.plan.model import Plan, Step
from kit.spec.model import HostSpec, PortAccess

Steps = dict[str, Step]
GPU = "/run/b300kit/gpu.json"


def words(host: Host, *argv: str) -> str:
    """Output of a command that must succeed; arguments are quoted by testinfra."""
    return str(host.check_output(" ".join(["%s"] * len(argv)), *argv))


def numbers(text: str) -> set[int]:
    """Kernel list format to a set."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def test_the_plan_is_of_this_boot(host: Host, plan: Plan) -> None:
    assert words(host, "cat", "/proc/sys/kernel/random/boot_id") == plan.boot_id


def test_managed_files_are_as_rendered(host: Host, plan: Plan) -> None:
    files = [s.file for s in plan.steps if s.file is not None]
    assert files
    found = {
        line.split("  ", 1)[1]: line.split("  ", 1)[0]
        for line in words(host, "sha256sum", "--", *(f.path for f in files)).splitlines()
    }
    assert found == {f.path: f.sha256 for f in files}


def test_managed_files_belong_to_root_and_only_root_writes_them(host: Host, plan: Plan) -> None:
    files = [s.file for s in plan.steps if s.file is not None]
    found = words(host, "stat", "--format=%n %a %U:%G", "--", *(f.path for f in files)).splitlines()
    assert sorted(found) == sorted(f"{f.path} {f.mode.lstrip('0')} {f.owner}:{f.group}" for f in files)
    assert all(int(f.mode, 8) & 0o022 == 0 for f in files)


def test_packages_are_held(host: Host, spec: HostSpec) -> None:
    held = set(words(host, "apt-mark", "showhold").split())
    assert {*spec.packages.hold} <= held


def test_unattended_upgrades_leaves_them_alone(host: Host, spec: HostSpec) -> None:
    listed = words(host, "apt-config", "dump", "Unattended-Upgrade::Package-Blacklist")
    patterns = re.findall(r'"(\S+)"', listed)
    for name in spec.packages.hold:
        assert any(re.match(p.replace("\\\\", "\\"), name) for p in patterns), name


def test_every_cpu_uses_the_governor(host: Host, spec: HostSpec) -> None:
    script = "grep -h . /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor | sort | uniq -c"
    found = str(host.check_output("sh -c %s", script)).split()
    assert found[1::2] == [spec.cpu.governor]
    assert int(found[0]) >= spec.cpu.physical_cores


def test_no_movable_interrupt_reaches_a_serving_cpu(host: Host, spec: HostSpec, assignment: dict[str, Any]) -> None:
    if spec.cpu.interrupts == "leave":
        pytest.skip("interrupts are declared to be left alone")
    refused = json.loads(words(host, "cat", "/run/b300kit/cpu.json"))["read_back"]["interrupts"]["refused"]
    # Those whose file nobody may write are the kernel's own to place.
    listed = str(host.check_output("sh -c %s", "find /proc/irq -name smp_affinity_list -perm /222 -exec grep -H . {} +"))
    serving = set(assignment["serving_cpus"])
    astray = {}
    for line in listed.splitlines():
        path, _, cpus = line.partition(":")
        number = path.split("/")[3]
        if number not in refused and numbers(cpus) & serving:
            astray[number] = cpus
    assert astray == {}


def test_fast_cores_stay_out_of_slow_c_states(host: Host, spec: HostSpec, assignment: dict[str, Any]) -> None:
    limit = spec.cpu.max_cstate_latency_us
    if limit is None:
        pytest.skip("C-states are declared to be left alone")
    seated = [cpu for seat in assignment["schedulers"] for cpu in seat["cpus"]]
    assert seated
    one = "for s in /sys/devices/system/cpu/cpu$c/cpuidle/state*; do echo $c $(cat $s/latency $s/disable); done"
    script = f'for c in "$@"; do {one}; done'
    rows = str(host.check_output("sh -c %s sh " + " ".join(["%s"] * len(seated)), script, *map(str, seated))).splitlines()
    allowed = [row for row in rows if row.split()[2] == "0" and int(row.split()[1]) > limit]
    assert rows
    assert allowed == []


def test_the_seats_are_cores_the_host_has(host: Host, spec: HostSpec, assignment: dict[str, Any]) -> None:
    seats = assignment["schedulers"]
    assert len(seats) == spec.gpus.count
    for seat in seats:
        path = f"/sys/devices/system/cpu/cpu{seat['core']}/topology/thread_siblings_list"
        assert numbers(words(host, "cat", path)) == set(seat["cpus"])


def test_the_docker_daemon_has_its_limits(host: Host, spec: HostSpec) -> None:
    pid = words(host, "systemctl", "show", "--property=MainPID", "--value", "docker.service")
    assert int(pid) > 0
    limits = words(host, "cat", f"/proc/{pid}/limits")
    memlock = next(line for line in limits.splitlines() if line.startswith("Max locked memory")).split()[3]
    nofile = next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3]
    want = spec.memory.memlock_kib
    assert memlock == "unlimited" or (want != "unlimited" and int(memlock) >= want * 1024)
    assert int(nofile) >= spec.memory.nofile


def test_docker_runs_with_the_declared_settings(host: Host, spec: HostSpec) -> None:
    info = json.loads(words(host, "docker", "info", "--format", "{{json .}}"))
    assert info["LiveRestoreEnabled"] is spec.docker.live_restore
    assert info["LoggingDriver"] == "json-file"
    assert info["DockerRootDir"] == spec.docker.data_root


def test_gpus_are_described_for_containers(host: Host, spec: HostSpec) -> None:
    if not spec.docker.cdi:
        pytest.skip("CDI is declared off")
    text = str(
        host.check_output("sh -c %s", "cat /run/cdi/nvidia.yaml /etc/cdi/nvidia.yaml 2>/dev/null || test -s /run/cdi/nvidia.yaml")
    )
    assert "nvidia.com/gpu" in text


@pytest.mark.parametrize("unit", ["cpu", "gpu", "memory", "firewall"])
def test_boot_units_ended_well_and_start_at_boot(host: Host, unit: str) -> None:
    name = f"b300kit-{unit}.service"
    shown = words(host, "systemctl", "show", "--property=ActiveState,Result,NeedDaemonReload", name)
    assert sorted(shown.split()) == ["ActiveState=active", "NeedDaemonReload=no", "Result=success"]
    # Not the manager's UnitFileState: that is as old as its last daemon-reload.
    assert words(host, "systemctl", "is-enabled", name) == "enabled"


def test_gpu_settings_were_read_back_in_this_boot(host: Host, spec: HostSpec, plan: Plan) -> None:
    record = json.loads(words(host, "cat", GPU))
    assert record["boot_id"] == plan.boot_id
    assert record["wrong"] == []
    bound = {"minimum_mhz": spec.gpus.sm_clock_mhz, "maximum_mhz": spec.gpus.sm_clock_mhz}
    assert [g["locked_sm_clock"] for g in record["gpus"]] == [bound] * spec.gpus.count


def test_nvidia_smi_agrees(host: Host, spec: HostSpec) -> None:
    asked = "name,persistence_mode,power.limit,mig.mode.current"
    rows = words(host, "nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits").splitlines()
    persistence = "Enabled" if spec.gpus.persistence else "Disabled"
    found = [[cell.strip() for cell in row.split(",")] for row in rows]
    assert len(found) == spec.gpus.count
    for name, mode, power, mig in found:
        assert (name, mode) == (spec.gpus.model, persistence)
        assert abs(float(power) - spec.gpus.power_limit_w) <= 1
        assert mig in (("Enabled",) if spec.gpus.mig else ("Disabled", "[N/A]"))


def test_memory_settings_are_in_effect(host: Host, spec: HostSpec) -> None:
    files = ("/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/vm/swappiness", "/proc/swaps", "/proc/meminfo")
    text = words(host, "head", "-v", "-n", "200", *files)
    assert f"[{spec.memory.transparent_huge_pages}]" in text
    assert re.search(rf"swappiness <==\n{spec.memory.swappiness}\n", text)
    total = re.search(r"HugePages_Total:\s+(\d+)", text)
    assert total is not None
    assert int(total[1]) == spec.memory.huge_pages.count
    if not spec.memory.swap:
        assert re.search(r"swaps <==\nFilename[^\n]*\n\s*==>", text), "swap is in use"


def test_shared_memory_is_large_enough(host: Host, spec: HostSpec) -> None:
    size = words(host, "df", "--output=size", "--block-size=1K", "/dev/shm").split()[-1]
    assert int(size) >= spec.memory.shm_gib * 1024 * 1024


def test_logins_of_the_service_user_get_the_limits(host: Host, spec: HostSpec) -> None:
    text = words(host, "cat", "/etc/security/limits.d/60-b300kit.conf")
    want = spec.memory.memlock_kib
    assert f"{spec.service_user} - memlock {want}" in text


def test_the_service_user_owns_its_folder_and_cannot_log_in(host: Host, spec: HostSpec) -> None:
    entry = words(host, "getent", "passwd", spec.service_user).split(":")
    assert entry[2] != "0"
    assert entry[6] in ("/usr/sbin/nologin", "/bin/false")
    assert words(host, "stat", "--format=%F %a %U", spec.data_dir) == f"directory 750 {spec.service_user}"


def rules_of(table: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    return [item[kind] for item in table["nftables"] if kind in item]


def elements(table: dict[str, Any], name: str) -> set[str]:
    """A named set's networks in CIDR form."""
    found = next(s for s in rules_of(table, "set") if s["name"] == name)
    nets = set()
    for element in found.get("elem", []):
        if isinstance(element, dict):
            nets.add(f"{element['prefix']['addr']}/{element['prefix']['len']}")
        else:
            nets.add(f"{element}/{128 if ':' in element else 32}")
    return nets


def test_the_kernel_guards_each_declared_port(host: Host, spec: HostSpec) -> None:
    table = json.loads(words(host, "nft", "--json", "list", "table", "inet", "b300kit"))
    groups: dict[str, PortAccess | None] = {
        "engine": spec.network.engine,
        "metrics": spec.network.metrics,
        "nccl": spec.network.nccl,
    }
    dropped = [r["expr"] for r in rules_of(table, "rule") if r["chain"] == "guard" and any("drop" in e for e in r["expr"])]
    assert len(dropped) == sum(group is not None for group in groups.values())
    for name, group in groups.items():
        if group is None:
            continue
        assert elements(table, f"{name}_v4") | elements(table, f"{name}_v6") == {str(n) for n in group.from_}
        first, _, last = group.ports.partition("-")
        port = {"range": [int(first), int(last)]} if last else int(first)
        rights = [e["match"]["right"] for expr in dropped for e in expr if "match" in e and e["match"]["left"].get("payload")]
        assert port in rights


def test_the_chains_stand_where_docker_cannot_go_round_them(host: Host) -> None:
    table = json.loads(words(host, "nft", "--json", "list", "table", "inet", "b300kit"))
    hooks = {c["name"]: (c["hook"], c["prio"], c["policy"]) for c in rules_of(table, "chain") if "hook" in c}
    assert hooks == {"arriving": ("prerouting", -150, "accept"), "forwarded": ("forward", -10, "accept")}


def test_ssh_is_in_no_rule(host: Host, spec: HostSpec) -> None:
    text = words(host, "nft", "list", "table", "inet", "b300kit")
    for port in {22, spec.connection.port}:
        assert not re.search(rf"dport (?:\{{ )?{port}\b", text)
