"""Processors: topology, frequency control, C-states, interrupts. All from /sys and /proc."""

from __future__ import annotations

import json
import os
import re
from functools import partial

from kit.facts.host.read import Json, Unreadable, fact, is_unknown, mask, number, numbers, text, unknown

CPUS = "/sys/devices/system/cpu"
IRQS = "/proc/irq"
IRQ_RECORD = "/run/b300kit/cpu.json"


def logical(usable: set[int]) -> list[Json]:
    """One entry a logical CPU that sysfs knows, offline ones too. ``usable``: the CPUs this process may run on."""
    names = [name for name in os.listdir(CPUS) if re.match(r"^cpu[0-9]+$", name)]
    online = fact(lambda: set(numbers(text(CPUS + "/online"))))
    isolated = fact(lambda: set(numbers(text(CPUS + "/isolated"))))
    node_of = _nodes_by_cpu()
    request_us = fact(_pm_qos_us)
    return [_one(cpu, usable, online, isolated, node_of, request_us) for cpu in sorted(int(name[3:]) for name in names)]


def _one(cpu: int, usable: set[int], online: Json, isolated: Json, node_of: dict[int, int], request_us: Json) -> Json:
    base = f"{CPUS}/cpu{cpu}"
    frequency = base + "/cpufreq/"

    def member(of: Json) -> Json:
        return of if is_unknown(of) else cpu in of

    def node() -> int:
        if cpu not in node_of:
            raise Unreadable(f"no NUMA node lists CPU {cpu}")
        return node_of[cpu]

    return {
        "cpu": cpu,
        "core": fact(lambda: number(base + "/topology/core_id")),
        "package": fact(lambda: number(base + "/topology/physical_package_id")),
        "node": fact(node),
        "siblings": fact(lambda: numbers(text(base + "/topology/thread_siblings_list"))),
        "online": member(online),
        "isolated": member(isolated),
        "usable": cpu in usable,
        "base_khz": fact(lambda: number(frequency + "base_frequency")),
        "max_khz": fact(lambda: number(frequency + "cpuinfo_max_freq")),
        "scaling_max_khz": fact(lambda: number(frequency + "scaling_max_freq")),
        "current_khz": fact(lambda: number(frequency + "scaling_cur_freq")),
        "governor": fact(lambda: text(frequency + "scaling_governor")),
        "driver": fact(lambda: text(frequency + "scaling_driver")),
        "highest_perf": fact(lambda: number(base + "/acpi_cppc/highest_perf")),
        "prefcore_ranking": fact(lambda: number(frequency + "amd_pstate_prefcore_ranking")),
        "cstate_latency_us": fact(lambda: cstate_latency_us(cpu, request_us)),
    }


def _nodes_by_cpu() -> dict[int, int]:
    found: dict[int, int] = {}
    base = "/sys/devices/system/node"
    try:
        names = [name for name in os.listdir(base) if re.match(r"^node[0-9]+$", name)]
    except OSError:
        return found
    for name in names:
        cpus = fact(partial(_cpulist, f"{base}/{name}/cpulist"))
        if not is_unknown(cpus):
            found.update((cpu, int(name[4:])) for cpu in cpus)
    return found


def _cpulist(path: str) -> list[int]:
    return numbers(text(path))


def nodes() -> list[int]:
    """NUMA nodes, ascending."""
    return numbers(text("/sys/devices/system/node/online"))


def model() -> str:
    """The processor's marketing name."""
    for line in text("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    raise Unreadable("/proc/cpuinfo names no model")


def packages(cpus: list[Json]) -> int:
    """Sockets with a CPU that is online."""
    return len({cpu["package"] for cpu in _known(cpus, "package")})


def physical_cores(cpus: list[Json]) -> int:
    """Distinct sets of siblings: core numbers alone can repeat between dies."""
    return len({tuple(cpu["siblings"]) for cpu in _known(cpus, "siblings")})


def smt(cpus: list[Json]) -> bool:
    """Whether any core runs more than one thread now."""
    return any(len(cpu["siblings"]) > 1 for cpu in _known(cpus, "siblings"))


def _known(cpus: list[Json], key: str) -> list[Json]:
    present = [cpu for cpu in cpus if cpu["online"] is not False]
    missing = [cpu["cpu"] for cpu in present if is_unknown(cpu[key])]
    if missing or not present:
        raise Unreadable(f"{key} of CPUs {missing[:8]} not known")
    return present


def boost() -> bool:
    """Whether turbo frequencies are allowed at all."""
    if os.path.exists(CPUS + "/intel_pstate/no_turbo"):
        return number(CPUS + "/intel_pstate/no_turbo") == 0
    return number(CPUS + "/cpufreq/boost") == 1


def cstate_latency_us(cpu: int, request_us: Json) -> int:
    """Largest exit latency that may occur on a CPU: what sysfs leaves enabled, cut by the PM QoS request in force."""
    states = f"{CPUS}/cpu{cpu}/cpuidle"
    if not os.path.isdir(states):
        raise Unreadable("no cpuidle states in sysfs")
    names = [name for name in os.listdir(states) if re.match(r"^state[0-9]+$", name)]
    latencies = [number(f"{states}/{n}/latency") for n in names if number(f"{states}/{n}/disable") == 0]
    if not is_unknown(request_us):
        latencies = [value for value in latencies if value <= request_us]
    return max(latencies, default=0)


def deepest_us(cpus: list[Json]) -> int:
    """The largest of all online CPUs."""
    return max(int(cpu["cstate_latency_us"]) for cpu in _known(cpus, "cstate_latency_us"))


def _pm_qos_us() -> int:
    with open("/dev/cpu_dma_latency", "rb") as stream:
        return int.from_bytes(stream.read(4), "little", signed=True)


def irqbalance_banned() -> list[int]:
    """CPUs irqbalance must leave alone, from its environment file; none when it names none."""
    path = next((p for p in ("/etc/default/irqbalance", "/etc/sysconfig/irqbalance") if os.path.exists(p)), None)
    if path is None:
        raise Unreadable("irqbalance has no environment file")
    banned: list[int] = []
    for line in text(path).splitlines():
        name, _, value = line.strip().partition("=")
        value = value.strip().strip("\"'")
        if name.strip() == "IRQBALANCE_BANNED_CPULIST" and value not in ("", "-"):
            banned = numbers(value)
        elif name.strip() == "IRQBALANCE_BANNED_CPUS" and value:
            banned = mask(value)
    return banned


def interrupts(boot_id: str) -> Json:
    """Where interrupts that have a handler are set to go, apart from those that software cannot move; and how many those are.

    Set, not effective: an interrupt that was moved is delivered to its old CPU until it next fires, which may be never.
    """
    movable: set[int] = set()
    immovable = 0
    refused = fact(lambda: _refused(boot_id))
    for name in os.listdir(IRQS):
        base = f"{IRQS}/{name}"
        if not name.isdigit():
            continue
        try:
            handlers = sorted(entry for entry in os.listdir(base) if os.path.isdir(base + "/" + entry))
            if not handlers:
                continue
            path = base + "/smp_affinity_list"
            # Linux 6.12 and later shows by the mode what it spreads itself (NVMe queues) or what belongs to one CPU. Earlier
            # ones only refuse the write, which the boot unit tried.
            if not os.stat(path).st_mode & 0o222 or (not is_unknown(refused) and refused.get(name) == handlers):
                immovable += 1
            else:
                movable.update(numbers(text(path)))
        except FileNotFoundError:
            continue  # an interrupt can go away while we look
    return {"cpus": sorted(movable), "immovable": immovable}


def _refused(boot_id: str) -> dict[str, list[str]]:
    """Number and handlers of the interrupts that the boot unit could not move in this boot. A number can be given anew."""
    document = json.loads(text(IRQ_RECORD))
    if document["boot_id"] != boot_id:
        raise Unreadable(f"{IRQ_RECORD} is from another boot")
    return dict(document["read_back"]["interrupts"]["refused"])


def read(cpus: list[Json], services: dict[str, Json], priority: Json, boot_id: str) -> Json:
    """The ``cpu`` part of the facts. ``cpus``: from :func:`logical`."""
    irqs = fact(lambda: interrupts(boot_id))
    return {
        "model": fact(model),
        "packages": fact(lambda: packages(cpus)),
        "physical_cores": fact(lambda: physical_cores(cpus)),
        "smt": fact(lambda: smt(cpus)),
        "nodes": fact(nodes),
        "logical": cpus,
        "boost": fact(boost),
        "priority": priority,
        "measured": unknown("not measured in this boot; `probe --measure-cores` does, on a host that serves nobody"),
        "irqbalance_active": fact(lambda: _active(services, "irqbalance.service")),
        "irqbalance_banned": fact(irqbalance_banned),
        "irq_cpus": irqs if is_unknown(irqs) else irqs["cpus"],
        "irqs_immovable": irqs if is_unknown(irqs) else irqs["immovable"],
        "default_irq_cpus": fact(lambda: mask(text("/proc/irq/default_smp_affinity"))),
        "cstate_latency_us": fact(lambda: deepest_us(cpus)),
        "kernel_command_line": fact(lambda: text("/proc/cmdline")),
    }


def _active(services: dict[str, Json], unit: str) -> bool:
    state = services[unit]["active"]
    if is_unknown(state):
        raise Unreadable(state["unknown"])
    return bool(state == "active")
