"""The simulated processors as files of ``/sys/devices/system/{cpu,node}`` and ``/proc/cpuinfo``. Pure: path -> text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kit.sim.hardware.profile import Cpu

_CSTATES = (("POLL", 0), ("C1", 1), ("C1E", 2), ("C6", 170), ("C6P", 210))
"""Idle states of such a processor and their exit latency in microseconds."""
_MIN_KHZ = 800000


def ranges(cpus: list[int]) -> str:
    """``[0, 1, 2, 5]`` as the kernel writes it: ``0-2,5``."""
    parts: list[str] = []
    for cpu in sorted(cpus):
        first, _, last = parts[-1].partition("-") if parts else ("", "", "")
        if parts and int(last or first) == cpu - 1:
            parts[-1] = f"{first}-{cpu}"
        else:
            parts.append(str(cpu))
    return ",".join(parts)


def mask(cpus: list[int], total: int) -> str:
    """The same as comma-joined 32-bit groups, highest first."""
    bits = sum(1 << cpu for cpu in cpus)
    groups = (total + 31) // 32
    return ",".join(f"{(bits >> (32 * g)) & 0xFFFFFFFF:08x}" for g in reversed(range(groups)))


def package_of(cpu: Cpu, core: int) -> int:
    """Package of a physical core (numbered through all packages)."""
    return core // cpu.cores_per_package


def logical_of(cpu: Cpu, core: int) -> list[int]:
    """The threads of a physical core: the second ones come after all first ones, as Linux numbers them."""
    return [core + thread * cpu.cores for thread in range(cpu.threads)]


def max_khz(cpu: Cpu, core: int) -> int:
    """Highest frequency that a physical core claims."""
    total = cpu.cores
    if cpu.smear:
        step = (core * 37) % total  # 37 is odd, so with a power of two of cores each step is used once, in no order
        return cpu.slow_khz + (cpu.fast_khz - cpu.slow_khz) * step // (total - 1)
    fast = core % cpu.cores_per_package in cpu.fast_positions[package_of(cpu, core)]
    return cpu.fast_khz if fast else cpu.slow_khz


def _one_cpu(cpu: Cpu, core: int, thread: int) -> Iterator[tuple[str, str]]:
    here = logical_of(cpu, core)
    name = f"cpu{here[thread]}"
    package = package_of(cpu, core)
    highest = max_khz(cpu, core)
    mates = [c for other in range(cpu.cores_per_package) for c in logical_of(cpu, package * cpu.cores_per_package + other)]
    total = cpu.logical
    yield f"{name}/online", "1"
    topology = {
        "core_id": str(core % cpu.cores_per_package),
        "physical_package_id": str(package),
        "die_id": str(package),
        "thread_siblings_list": ranges(here),
        "thread_siblings": mask(here, total),
        "core_cpus_list": ranges(here),
        "core_cpus": mask(here, total),
        "core_siblings_list": ranges(mates),
        "core_siblings": mask(mates, total),
        "package_cpus_list": ranges(mates),
        "package_cpus": mask(mates, total),
    }
    frequency = {
        "scaling_driver": "intel_pstate",
        "scaling_governor": cpu.governor,
        "scaling_available_governors": "performance powersave",
        "base_frequency": str(cpu.base_khz),
        "cpuinfo_min_freq": str(_MIN_KHZ),
        "cpuinfo_max_freq": str(highest),
        "scaling_min_freq": str(_MIN_KHZ),
        "scaling_max_freq": str(highest),
        "scaling_cur_freq": str(_MIN_KHZ),
        "energy_performance_preference": "balance_performance",
        "affected_cpus": str(here[thread]),
        "related_cpus": str(here[thread]),
    }
    performance = {
        "highest_perf": str(highest // 100000),
        "nominal_perf": str(cpu.base_khz // 100000),
        "lowest_perf": str(_MIN_KHZ // 100000),
        "nominal_freq": str(cpu.base_khz // 1000),
    }
    for folder, values in (("topology", topology), ("cpufreq", frequency), ("acpi_cppc", performance)):
        yield from ((f"{name}/{folder}/{key}", value) for key, value in values.items())
    for index, (state, latency) in enumerate(_CSTATES):
        for key, value in (("name", state), ("latency", str(latency)), ("disable", "0"), ("usage", "0"), ("time", "0")):
            yield f"{name}/cpuidle/state{index}/{key}", value


def cpu_files(cpu: Cpu) -> Mapping[str, str]:
    """Under ``/sys/devices/system/cpu``."""
    every = ranges(list(range(cpu.logical)))
    files = {
        "online": every,
        "present": every,
        "possible": every,
        "offline": "",
        "isolated": "",
        "nohz_full": "",
        "kernel_max": "8191",
        "smt/active": str(cpu.threads - 1),
        "smt/control": "on" if cpu.threads > 1 else "notsupported",
        "intel_pstate/no_turbo": "0",
        "intel_pstate/status": "active",
        "intel_pstate/max_perf_pct": "100",
        "intel_pstate/min_perf_pct": "17",
        "cpuidle/current_driver": "intel_idle",
        "cpuidle/current_governor": "menu",
    }
    for core in range(cpu.cores):
        for thread in range(cpu.threads):
            files.update(_one_cpu(cpu, core, thread))
    return files


def node_files(cpu: Cpu, total_kib: int) -> Mapping[str, str]:
    """Under ``/sys/devices/system/node``: one node a package, sharing this machine's memory evenly."""
    nodes = ranges(list(range(cpu.packages)))
    files = {"online": nodes, "possible": nodes, "has_cpu": nodes, "has_memory": nodes, "has_normal_memory": nodes}
    for node in range(cpu.packages):
        first = node * cpu.cores_per_package
        members = [c for core in range(first, first + cpu.cores_per_package) for c in logical_of(cpu, core)]
        share = total_kib // cpu.packages
        files[f"node{node}/cpulist"] = ranges(members)
        files[f"node{node}/cpumap"] = mask(members, cpu.logical)
        files[f"node{node}/distance"] = " ".join("10" if other == node else "21" for other in range(cpu.packages))
        files[f"node{node}/meminfo"] = "\n".join(
            f"Node {node} {key}: {value:>14} kB" for key, value in (("MemTotal", share), ("MemFree", share // 2))
        )
        for size in (2048, 1048576):
            for key in ("nr_hugepages", "free_hugepages", "surplus_hugepages"):
                files[f"node{node}/hugepages/hugepages-{size}kB/{key}"] = "0"
    return files


def cpuinfo(cpu: Cpu) -> str:
    """``/proc/cpuinfo``, with the lines that people and tools read."""
    blocks = []
    for logical in range(cpu.logical):
        core = logical % cpu.cores
        blocks.append(
            f"processor\t: {logical}\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 173\nmodel name\t: {cpu.model}\n"
            f"stepping\t: 1\ncpu MHz\t\t: {_MIN_KHZ // 1000}.000\nphysical id\t: {package_of(cpu, core)}\n"
            f"siblings\t: {cpu.threads * cpu.cores_per_package}\ncore id\t\t: {core % cpu.cores_per_package}\n"
            f"cpu cores\t: {cpu.cores_per_package}\nflags\t\t: fpu tsc msr cx8 sse sse2 ht lm constant_tsc nonstop_tsc avx avx2 "
            "avx512f amx_tile hwp hwp_epp\n"
        )
    return "\n".join(blocks) + "\n"
