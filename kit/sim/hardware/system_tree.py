"""The rest of the simulated hardware as files: interrupts, kernel settings, PCI devices, kernel module. Pure: path -> text.

Paths are relative to ``/opt/sim/trees``; ``guest/opt/sim/bin/hardware`` puts them over ``/proc`` and ``/sys`` at each boot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from kit.sim.hardware.cpu_tree import cpu_files, cpuinfo, mask, node_files, ranges
from kit.sim.hardware.profile import Profile, gpu_facts

_IRQS = range(24, 88)
SYSCTLS = {
    "vm/swappiness": "60",
    "vm/nr_hugepages": "0",
    "vm/nr_overcommit_hugepages": "0",
    "vm/hugetlb_shm_group": "0",
    "vm/max_map_count": "65530",
    "vm/overcommit_memory": "0",
    "vm/zone_reclaim_mode": "0",
    "vm/min_free_kbytes": "67584",
    "vm/dirty_ratio": "20",
    "vm/dirty_background_ratio": "10",
    "vm/dirty_expire_centisecs": "3000",
    "vm/dirty_writeback_centisecs": "500",
    "vm/vfs_cache_pressure": "100",
    "vm/compaction_proactiveness": "20",
    "vm/stat_interval": "1",
    "vm/watermark_scale_factor": "10",
    "kernel/numa_balancing": "1",
    "kernel/nmi_watchdog": "1",
    "kernel/watchdog": "1",
    "kernel/panic": "0",
    "kernel/pid_max": "4194304",
    "kernel/sched_autogroup_enabled": "1",
    "kernel/sched_rt_runtime_us": "950000",
    "kernel/perf_event_paranoid": "3",
    "kernel/timer_migration": "1",
    "kernel/shmmax": "18446744073692774399",
    "kernel/shmall": "18446744073692774399",
    "kernel/threads-max": "2061000",
    "fs/protected_fifos": "1",
    "fs/protected_hardlinks": "1",
    "fs/protected_regular": "2",
    "fs/protected_symlinks": "1",
    "fs/file-max": "9223372036854775807",
    "fs/nr_open": "1048576",
    "fs/aio-max-nr": "65536",
    "fs/inotify/max_user_watches": "1048576",
    "fs/inotify/max_user_instances": "128",
    "net/core/somaxconn": "4096",
    "net/core/rmem_max": "212992",
    "net/core/wmem_max": "212992",
    "net/core/rmem_default": "212992",
    "net/core/wmem_default": "212992",
    "net/core/netdev_max_backlog": "1000",
    "net/core/default_qdisc": "pfifo_fast",
    "net/core/busy_poll": "0",
    "net/core/busy_read": "0",
}
"""Kernel settings as a fresh host has them. The real ones belong to the machine underneath and stay read-only."""


def _irq_files(total: int) -> Mapping[str, str]:
    everything = list(range(total))
    files = {"default_smp_affinity": mask(everything, total)}
    for position, irq in enumerate(_IRQS):
        # As irqbalance leaves a busy host: one CPU each, serving cores among them.
        at = [(position * 5) % total]
        device = "mlx5_comp" if position < 32 else "nvme0q"
        files |= {
            f"{irq}/smp_affinity_list": ranges(at),
            f"{irq}/smp_affinity": mask(at, total),
            f"{irq}/effective_affinity_list": ranges(at),
            f"{irq}/effective_affinity": mask(at, total),
            f"{irq}/affinity_hint": mask(at, total),
            f"{irq}/node": str(position % 2),
            f"{irq}/{device}{position % 32}/.keep": "",
        }
    return files


def _pci_files(profile: Profile) -> Mapping[str, str]:
    files: dict[str, str] = {}
    for gpu in profile.gpus:
        address = gpu.bus_id[4:].lower()
        identity = int(str(gpu.pci_device_id), 0) if not isinstance(gpu.pci_device_id, str) else 0
        files |= {
            f"{address}/{key}": value
            for key, value in {
                "vendor": "0x10de",
                "device": f"0x{identity >> 16:04x}",
                "class": "0x030200",
                "numa_node": str(gpu.numa_node),
                "local_cpulist": gpu.cpus,
                "current_link_speed": "64.0 GT/s PCIe",
                "max_link_speed": "64.0 GT/s PCIe",
                "current_link_width": str(gpu.pcie_width),
                "max_link_width": str(gpu.pcie_width_max),
                "enable": "1",
            }.items()
        }
    return files


def _driver_files(profile: Profile) -> Mapping[str, str]:
    version = profile.driver.module
    banner = (
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release Build  (root@host)\nGCC version: gcc 12"
    )
    return {"nvidia/version": banner} | {
        f"nvidia/gpus/{gpu.bus_id[4:].lower()}/information": (
            f"Model: \t\t {gpu.name}\nGPU UUID: \t {gpu.uuid}\nDevice Minor: \t {index}"
        )
        for index, gpu in enumerate(profile.gpus)
    }


def trees(profile: Profile, memory_kib: int) -> dict[str, str]:
    """Every simulated file, by its path under ``/opt/sim/trees`` (mirrors ``/``). Each text ends with a newline."""
    parts: dict[str, Mapping[str, str]] = {
        "sys/devices/system/cpu": cpu_files(profile.cpu),
        "sys/devices/system/node": node_files(profile.cpu, memory_kib),
        "sys/kernel/mm/transparent_hugepage": {
            "enabled": "[always] madvise never",
            "defrag": "always defer defer+madvise [madvise] never",
            "khugepaged/defrag": "1",
        },
        "sys/module/nvidia": {"version": profile.driver.module, "refcnt": "0", "parameters/.keep": ""},
        "sys/bus/pci/devices": _pci_files(profile),
        "proc/driver": _driver_files(profile),
        "proc/irq": _irq_files(profile.cpu.logical),
        "proc/sys": SYSCTLS,
    }
    files = {f"{top}/{path}": text for top, part in parts.items() for path, text in part.items()}
    files["proc/cpuinfo"] = cpuinfo(profile.cpu).rstrip("\n")
    return {path: f"{text}\n" if text else "" for path, text in files.items()}


def hardware_files(profile: Profile, memory_kib: int, *, own_kernel: bool = False) -> dict[str, str]:
    """All of a host's ``/opt/sim`` that depends on its profile; `own_kernel`: its memory and interrupts are real."""
    settings = {
        "own_kernel": own_kernel,
        "gpu_count": profile.gpu_count,
        "turbo_freq": profile.cpu.turbo_freq,
        "fast_mhz": profile.cpu.fast_khz // 1000,
        "slow_mhz": profile.cpu.slow_khz // 1000,
        "fast_cores_per_package": max((len(p) for p in profile.cpu.fast_positions), default=0),
        "persistence_mode": profile.driver.persistence_mode,
        "fabric_manager": profile.driver.fabric_manager,
        "kernel_log": list(profile.kernel_log),
    }
    return {
        **{f"trees/{path}": text for path, text in trees(profile, memory_kib).items()},
        "gpus.conf": gpu_facts(profile),
        "settings.json": json.dumps(settings, indent=2) + "\n",
    }
