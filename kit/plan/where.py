"""Paths and unit names that this kit owns or reads on a host. One list, so that the probe is asked for what the plan looks at."""

from __future__ import annotations

CONFIG_DIR = "/etc/b300kit"
LIBRARY_DIR = "/usr/local/lib/b300kit"
RUN_DIR = "/run/b300kit"
UNIT_DIR = "/etc/systemd/system"


def boot_config(area: str) -> str:
    """Settings of an area's boot unit."""
    return f"{CONFIG_DIR}/{area}.json"


def boot_script(area: str) -> str:
    """What it runs."""
    return f"{LIBRARY_DIR}/{area}.py"


def boot_unit(area: str) -> str:
    """Its name."""
    return f"b300kit-{area}.service"


def boot_result(area: str) -> str:
    """What it read back, in this boot."""
    return f"{RUN_DIR}/{area}.json"


CPU_CONFIG = boot_config("cpu")
CPU_SCRIPT = boot_script("cpu")
CPU_UNIT = boot_unit("cpu")
IRQBALANCE_ENV = f"{CONFIG_DIR}/irqbalance.env"
IRQBALANCE_UNIT = "irqbalance.service"
IRQBALANCE_DROP_IN = f"{UNIT_DIR}/irqbalance.service.d/b300kit.conf"

GPU_CONFIG = boot_config("gpu")
GPU_SCRIPT = boot_script("gpu")
GPU_UNIT = boot_unit("gpu")
GPU_READ_BACK = boot_result("gpu")

MEMORY_CONFIG = boot_config("memory")
MEMORY_SCRIPT = boot_script("memory")
MEMORY_UNIT = boot_unit("memory")
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
