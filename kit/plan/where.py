"""Paths and unit names that this kit owns or reads on a host. One list, so that the probe is asked for what the plan looks at."""

from __future__ import annotations

CONFIG_DIR = "/etc/b300kit"
LIBRARY_DIR = "/usr/local/lib/b300kit"
RUN_DIR = "/run/b300kit"
UNIT_DIR = "/etc/systemd/system"

CPU_CONFIG = f"{CONFIG_DIR}/cpu.json"
CPU_SCRIPT = f"{LIBRARY_DIR}/cpu.py"
CPU_UNIT = "b300kit-cpu.service"
IRQBALANCE_ENV = f"{CONFIG_DIR}/irqbalance.env"
IRQBALANCE_UNIT = "irqbalance.service"
IRQBALANCE_DROP_IN = f"{UNIT_DIR}/irqbalance.service.d/b300kit.conf"

GPU_CONFIG = f"{CONFIG_DIR}/gpu.json"
GPU_SCRIPT = f"{LIBRARY_DIR}/gpu.py"
GPU_UNIT = "b300kit-gpu.service"
GPU_READ_BACK = f"{RUN_DIR}/gpu.json"

MEMORY_CONFIG = f"{CONFIG_DIR}/memory.json"
MEMORY_SCRIPT = f"{LIBRARY_DIR}/memory.py"
MEMORY_UNIT = "b300kit-memory.service"
LIMITS = "/etc/security/limits.d/60-b300kit.conf"
SYSCTL = "/etc/sysctl.d/60-b300kit.conf"
FSTAB = "/etc/fstab"

BLACKLIST = "/etc/apt/apt.conf.d/52b300kit-unattended-upgrades"

DOCKER_UNIT = "docker.service"
DAEMON_JSON = "/etc/docker/daemon.json"
DOCKER_DROP_IN = f"{UNIT_DIR}/docker.service.d/b300kit.conf"
DOCKER_LOADED = f"{RUN_DIR}/docker-daemon.json"
CDI_UNIT = "b300kit-cdi.service"
CDI_REFRESH_UNIT = "nvidia-cdi-refresh.service"
CDI_SPECS = ("/run/cdi/nvidia.yaml", "/etc/cdi/nvidia.yaml")
NVIDIA_CTK = "/usr/bin/nvidia-ctk"

FIREWALL_RULES = f"{CONFIG_DIR}/firewall.nft"
FIREWALL_UNIT = "b300kit-firewall.service"
FIREWALL_LOADED = f"{RUN_DIR}/firewall.nft"

ENGINE_UNIT_FILE = f"{UNIT_DIR}/b300kit-engine.service"
FABRIC_MANAGER_UNIT = "nvidia-fabricmanager.service"
PERSISTENCED_UNIT = "nvidia-persistenced.service"


def unit_file(unit: str) -> str:
    """Where a unit of ours lies."""
    return f"{UNIT_DIR}/{unit}"


OUR_UNITS = (CPU_UNIT, GPU_UNIT, MEMORY_UNIT, CDI_UNIT, FIREWALL_UNIT)
READ_UNITS = (*OUR_UNITS, DOCKER_UNIT, IRQBALANCE_UNIT, CDI_REFRESH_UNIT, FABRIC_MANAGER_UNIT, PERSISTENCED_UNIT)
MANAGED_FILES = (
    CPU_CONFIG, CPU_SCRIPT, IRQBALANCE_ENV, IRQBALANCE_DROP_IN, GPU_CONFIG, GPU_SCRIPT, MEMORY_CONFIG, MEMORY_SCRIPT,
    LIMITS, SYSCTL, FSTAB, BLACKLIST, DAEMON_JSON, DOCKER_DROP_IN, FIREWALL_RULES,
    *(unit_file(u) for u in OUR_UNITS),
)  # fmt: skip
READ_FILES = (GPU_READ_BACK, DOCKER_LOADED, FIREWALL_LOADED, *CDI_SPECS, NVIDIA_CTK, ENGINE_UNIT_FILE)
