"""One assertion a promise, read from the host by other means than the kit's probe: shell tools, not our scripts."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from testinfra.host import Host

from kit.plan.model import Plan, Step
from kit.spec.model import HostSpec, PortAccess
from tests.host.promise import holds, same, shell, words

Steps = dict[str, Step]
GPU = "/run/b300kit/gpu.json"


def numbers(text: str) -> set[int]:
    """Kernel list format to a set."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def test_the_plan_is_of_this_boot(host: Host, plan: Plan) -> None:
    same("boot id", plan.boot_id, words(host, "cat", "/proc/sys/kernel/random/boot_id"))


def test_managed_files_are_as_rendered(host: Host, plan: Plan) -> None:
    files = [s.file for s in plan.steps if s.file is not None]
    holds(bool(files), "managed files in the plan", "some", "none")
    found = {
        line.split("  ", 1)[1]: line.split("  ", 1)[0]
        for line in words(host, "sha256sum", "--", *(f.path for f in files)).splitlines()
    }
    other = [f.path for f in files if found.get(f.path) != f.sha256]
    holds(not other, "content of managed files", "as rendered", f"other in {', '.join(other)}")


def test_managed_files_belong_to_root_and_only_root_writes_them(host: Host, plan: Plan) -> None:
    files = [s.file for s in plan.steps if s.file is not None]
    found = words(host, "stat", "--format=%n %a %U:%G", "--", *(f.path for f in files)).splitlines()
    wanted = {f"{f.path} {f.mode.lstrip('0')} {f.owner}:{f.group}" for f in files}
    odd = sorted({*found} ^ wanted)
    holds(
        not odd,
        "mode and owner of managed files",
        ", ".join(x for x in odd if x in wanted),
        ", ".join(x for x in odd if x in found),
    )
    loose = [f.path for f in files if int(f.mode, 8) & 0o022]
    holds(not loose, "who writes managed files", "root only", f"others too: {', '.join(loose)}")


def test_packages_are_held(host: Host, spec: HostSpec) -> None:
    held = set(words(host, "apt-mark", "showhold").split())
    loose = sorted({*spec.packages.hold} - held)
    holds(not loose, "packages on hold", ", ".join(sorted(spec.packages.hold)), f"not held: {', '.join(loose)}")


def test_unattended_upgrades_leaves_them_alone(host: Host, spec: HostSpec) -> None:
    listed = words(host, "apt-config", "dump", "Unattended-Upgrade::Package-Blacklist")
    patterns = re.findall(r'"(\S+)"', listed)
    open_ = [name for name in spec.packages.hold if not any(re.match(p.replace("\\\\", "\\"), name) for p in patterns)]
    holds(not open_, "packages that unattended-upgrades leaves alone", "all that are held", f"not {', '.join(open_)}")


def test_every_cpu_uses_the_governor(host: Host, spec: HostSpec) -> None:
    script = "grep -h . /sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_governor | sort | uniq -c"
    found = shell(host, script).split()
    counted = ", ".join(f"{name} on {count} CPUs" for count, name in zip(found[::2], found[1::2], strict=True))
    same("governor of every CPU", [spec.cpu.governor], found[1::2])
    holds(int(found[0]) >= spec.cpu.physical_cores, "CPUs with that governor", f"{spec.cpu.physical_cores} or more", counted)


def test_no_movable_interrupt_reaches_a_serving_cpu(host: Host, spec: HostSpec, assignment: dict[str, Any]) -> None:
    if spec.cpu.interrupts == "leave":
        pytest.skip("interrupts are declared to be left alone")
    refused = json.loads(words(host, "cat", "/run/b300kit/cpu.json"))["read_back"]["interrupts"]["refused"]
    # Those whose file nobody may write are the kernel's own to place.
    listed = shell(host, "find /proc/irq -name smp_affinity_list -perm /222 -exec grep -H . {} +")
    serving = set(assignment["serving_cpus"])
    astray = {}
    for line in listed.splitlines():
        path, _, cpus = line.partition(":")
        number = path.split("/")[3]
        if number not in refused and numbers(cpus) & serving:
            astray[number] = cpus
    told = "; ".join(f"{number} on {cpus}" for number, cpus in astray.items())
    holds(not astray, "movable interrupts on serving CPUs", "none", told)


def test_fast_cores_stay_out_of_slow_c_states(host: Host, spec: HostSpec, assignment: dict[str, Any]) -> None:
    limit = spec.cpu.max_cstate_latency_us
    if limit is None:
        pytest.skip("C-states are declared to be left alone")
    seated = [cpu for seat in assignment["schedulers"] for cpu in seat["cpus"]]
    holds(bool(seated), "CPUs with a seat", "some", "none")
    one = "for s in /sys/devices/system/cpu/cpu$c/cpuidle/state*; do echo $c $(cat $s/latency $s/disable); done"
    script = f'for c in "$@"; do {one}; done'
    rows = shell(host, script, *map(str, seated)).splitlines()
    allowed = [row for row in rows if row.split()[2] == "0" and int(row.split()[1]) > limit]
    holds(bool(rows), "idle states of the fast cores", "some", "none")
    slow = ", ".join(f"CPU {row.split()[0]}: {row.split()[1]} us" for row in allowed)
    holds(not allowed, "allowed idle states of the fast cores", f"at most {limit} us to wake", slow)


def test_the_seats_are_cores_the_host_has(host: Host, spec: HostSpec, assignment: dict[str, Any]) -> None:
    seats = assignment["schedulers"]
    same("schedulers with a seat", spec.gpus.count, len(seats))
    for seat in seats:
        path = f"/sys/devices/system/cpu/cpu{seat['core']}/topology/thread_siblings_list"
        same(f"CPUs of core {seat['core']}", sorted(seat["cpus"]), sorted(numbers(words(host, "cat", path))))


def test_the_docker_daemon_has_its_limits(host: Host, spec: HostSpec) -> None:
    pid = words(host, "systemctl", "show", "--property=MainPID", "--value", "docker.service")
    holds(pid.isdigit() and int(pid) > 0, "docker.service", "running", "no process")
    limits = words(host, "cat", f"/proc/{pid}/limits")
    memlock = next(line for line in limits.splitlines() if line.startswith("Max locked memory")).split()[3]
    nofile = next(line for line in limits.splitlines() if line.startswith("Max open files")).split()[3]
    want = spec.memory.memlock_kib
    enough = memlock == "unlimited" or (want != "unlimited" and int(memlock) >= want * 1024)
    holds(enough, "locked memory of the docker daemon", f"{want} KiB or more", f"{memlock} bytes")
    holds(int(nofile) >= spec.memory.nofile, "open files of the docker daemon", f"{spec.memory.nofile} or more", nofile)


def test_docker_runs_with_the_declared_settings(host: Host, spec: HostSpec) -> None:
    info = json.loads(words(host, "docker", "info", "--format", "{{json .}}"))
    same("live-restore of docker", spec.docker.live_restore, info.get("LiveRestoreEnabled"))
    same("log driver of docker", "json-file", info.get("LoggingDriver"))
    same("data folder of docker", spec.docker.data_root, info.get("DockerRootDir"))


def test_gpus_are_described_for_containers(host: Host, spec: HostSpec) -> None:
    if not spec.docker.cdi:
        pytest.skip("CDI is declared off")
    text = shell(host, "cat /run/cdi/nvidia.yaml /etc/cdi/nvidia.yaml 2>/dev/null || :")
    holds(
        "nvidia.com/gpu" in text, "GPUs in the CDI files", "nvidia.com/gpu in /run/cdi or /etc/cdi", "none" if text else "no file"
    )


@pytest.mark.parametrize("unit", ["cpu", "gpu", "memory", "firewall"])
def test_boot_units_ended_well_and_start_at_boot(host: Host, unit: str) -> None:
    name = f"b300kit-{unit}.service"
    shown = sorted(words(host, "systemctl", "show", "--property=ActiveState,Result,NeedDaemonReload", name).split())
    same(name, "ActiveState=active NeedDaemonReload=no Result=success", " ".join(shown))
    # Not the manager's UnitFileState: that is as old as its last daemon-reload.
    same(f"{name} at boot", "enabled", shell(host, 'systemctl is-enabled "$1" || :', name))


def test_gpu_settings_were_read_back_in_this_boot(host: Host, spec: HostSpec, plan: Plan) -> None:
    record = json.loads(words(host, "cat", GPU))
    same("boot in which the GPUs were set", plan.boot_id, record["boot_id"])
    same("GPU settings that did not take", [], record["wrong"])
    bound = {"minimum_mhz": spec.gpus.sm_clock_mhz, "maximum_mhz": spec.gpus.sm_clock_mhz}
    same("locked SM clock of each GPU", [bound] * spec.gpus.count, [g["locked_sm_clock"] for g in record["gpus"]])


def watts(text: str, limit: float) -> bool:
    try:
        return abs(float(text) - limit) <= 1
    except ValueError:
        return False


def test_nvidia_smi_agrees(host: Host, spec: HostSpec) -> None:
    asked = "name,persistence_mode,power.limit,mig.mode.current"
    rows = words(host, "nvidia-smi", f"--query-gpu={asked}", "--format=csv,noheader,nounits").splitlines()
    persistence = "Enabled" if spec.gpus.persistence else "Disabled"
    found = [[cell.strip() for cell in row.split(",")] for row in rows]
    same("GPUs that nvidia-smi lists", spec.gpus.count, len(found))
    migs = ("Enabled",) if spec.gpus.mig else ("Disabled", "[N/A]")
    limit = spec.gpus.power_limit_w
    for number, (name, mode, power, mig) in enumerate(found):
        same(f"model of GPU {number}", spec.gpus.model, name)
        same(f"persistence mode of GPU {number}", persistence, mode)
        # "[N/A]" where it is not told: that is no number, and no pass.
        holds(watts(power, limit), f"power limit of GPU {number}", f"{limit} W", f"{power} W")
        holds(mig in migs, f"MIG mode of GPU {number}", " or ".join(migs), mig)


def test_memory_settings_are_in_effect(host: Host, spec: HostSpec) -> None:
    files = ("/sys/kernel/mm/transparent_hugepage/enabled", "/proc/sys/vm/swappiness", "/proc/swaps", "/proc/meminfo")
    text = words(host, "head", "-v", "-n", "200", *files)
    same("transparent huge pages", [spec.memory.transparent_huge_pages], re.findall(r"\[(\w+)\]", text))
    same("swappiness", [str(spec.memory.swappiness)], re.findall(r"swappiness <==\n(\d+)\n", text))
    same("huge pages", [str(spec.memory.huge_pages.count)], re.findall(r"HugePages_Total:\s+(\d+)", text))
    if not spec.memory.swap:
        used = re.findall(r"swaps <==\nFilename[^\n]*\n(.*?)\n?==>", text, re.DOTALL)
        same("swap in use", [""], [area.strip() for area in used])


def test_shared_memory_is_large_enough(host: Host, spec: HostSpec) -> None:
    size = words(host, "df", "--output=size", "--block-size=1K", "/dev/shm").split()[-1]
    want = spec.memory.shm_gib * 1024 * 1024
    holds(int(size) >= want, "size of /dev/shm", f"{want:.0f} KiB or more", f"{size} KiB")


def test_logins_of_the_service_user_get_the_limits(host: Host, spec: HostSpec) -> None:
    text = words(host, "cat", "/etc/security/limits.d/60-b300kit.conf")
    want = spec.memory.memlock_kib
    line = f"{spec.service_user} - memlock {want}"
    holds(line in text, "/etc/security/limits.d/60-b300kit.conf", line, "no such line")


def test_the_service_user_owns_its_folder_and_cannot_log_in(host: Host, spec: HostSpec) -> None:
    entry = words(host, "getent", "passwd", spec.service_user).split(":")
    holds(entry[2] != "0", f"user {spec.service_user}", "not root", "uid 0")
    holds(entry[6] in ("/usr/sbin/nologin", "/bin/false"), f"shell of {spec.service_user}", "/usr/sbin/nologin", entry[6])
    shown = words(host, "stat", "--format=%F %a %U", spec.data_dir)
    same(spec.data_dir, f"directory 750 {spec.service_user}", shown)


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
    same("rules that drop", sum(group is not None for group in groups.values()), len(dropped))
    for name, group in groups.items():
        if group is None:
            continue
        allowed = elements(table, f"{name}_v4") | elements(table, f"{name}_v6")
        same(f"networks that may reach {name}", sorted(str(n) for n in group.from_), sorted(allowed))
        first, _, last = group.ports.partition("-")
        port = {"range": [int(first), int(last)]} if last else int(first)
        rights = [e["match"]["right"] for expr in dropped for e in expr if "match" in e and e["match"]["left"].get("payload")]
        holds(port in rights, f"port of {name} in a rule that drops", group.ports, f"only {rights}")


def test_the_chains_stand_where_docker_cannot_go_round_them(host: Host) -> None:
    table = json.loads(words(host, "nft", "--json", "list", "table", "inet", "b300kit"))
    hooks = {c["name"]: (c["hook"], c["prio"], c["policy"]) for c in rules_of(table, "chain") if "hook" in c}
    same("chains", {"arriving": ("prerouting", -150, "accept"), "forwarded": ("forward", -10, "accept")}, hooks)


def test_ssh_is_in_no_rule(host: Host, spec: HostSpec) -> None:
    text = words(host, "nft", "list", "table", "inet", "b300kit")
    for port in {22, spec.connection.port}:
        named = re.search(rf"[^\n]*dport (?:\{{ )?{port}\b[^\n]*", text)
        holds(named is None, f"rules about the ssh port {port}", "none", named[0].strip() if named else "")
