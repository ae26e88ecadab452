"""The shape of what the probe reads on a host. One class an area; every leaf may be :class:`Unknown`.

The probe (``kit/facts/probe.py``) prints this as JSON and depends on nothing; this module gives it types.
Units are in the names: ``_khz``, ``_mib``, ``_kib``, ``_w``, ``_mhz``, ``_s``.
"""

from __future__ import annotations

from typing import Any

from kit.facts.base import Fact
from kit.facts.base import FactsModel as _Facts
from kit.facts.burn_in_model import MeasuredBurnIn
from kit.facts.unknown import Unknown


class Host(_Facts):
    """Who the machine is and which boot this is."""

    hostname: Fact[str]
    os_id: Fact[str]
    os_version: Fact[str]
    kernel: Fact[str]
    next_kernel: Fact[str]
    """Newest installed kernel release: what the next boot is expected to run."""
    next_kernel_dkms: Fact[str]
    """State of the nvidia DKMS module for ``next_kernel``: ``installed``, ``missing`` or ``not_used``."""
    boot_id: str
    uptime_s: Fact[float]
    python: str
    virtualization: Fact[str]
    clock_synchronized: Fact[bool]
    reboot_required: Fact[bool]


class LogicalCpu(_Facts):
    """One logical CPU as sysfs shows it."""

    cpu: int
    core: Fact[int]
    package: Fact[int]
    node: Fact[int]
    siblings: Fact[tuple[int, ...]]
    """Logical CPUs of the same physical core, this one included, ascending."""
    online: Fact[bool]
    isolated: Fact[bool]
    usable: bool
    """Whether a process can be scheduled on it here (the probe's own affinity before it changed anything)."""
    base_khz: Fact[int]
    max_khz: Fact[int]
    """``cpufreq/cpuinfo_max_freq``: what the hardware claims for this CPU."""
    scaling_max_khz: Fact[int]
    current_khz: Fact[int]
    governor: Fact[str]
    driver: Fact[str]
    highest_perf: Fact[int]
    """``acpi_cppc/highest_perf``, unitless."""
    prefcore_ranking: Fact[int]
    cstate_latency_us: Fact[int] = Unknown(unknown="not read")
    """Largest exit latency of a C-state that is still allowed on this CPU."""


class PriorityCores(_Facts):
    """Intel Speed Select, as ``intel-speed-select`` reports it (SST-TF with SST-CP is Priority Core Turbo)."""

    tool: bool
    """Whether intel-speed-select is installed. Without it nothing can be read or set: other than a tool that does not answer."""
    supported: Fact[bool]
    enabled: Fact[bool]
    """Core power (SST-CP) and turbo-freq (SST-TF) both on: only then do the priority cores boost."""
    priority_cpus: Fact[tuple[int, ...]]
    """Logical CPUs associated with CLOS 0."""
    bucket_cores: Fact[int]
    """High-priority cores per package at the highest turbo bucket; the table repeats per power domain, counted once a package."""
    bucket_mhz: Fact[int]


class MeasuredCore(_Facts):
    """One physical core's speed from the dependent-add probe."""

    core_cpu: int
    """The lowest logical CPU of the physical core."""
    alone_mhz: Fact[float]
    loaded_mhz: Fact[float]
    """With every other physical core loaded."""


class MeasuredCores(_Facts):
    """Result of ``probe --measure-cores``; valid for one boot only."""

    boot_id: str
    unit: str
    """``mhz`` from the C probe, ``relative`` (1.0 = median core) when no compiler was there."""
    cores: tuple[MeasuredCore, ...]


class Cpu(_Facts):
    """Processors, frequency control, interrupts."""

    model: Fact[str]
    packages: Fact[int]
    physical_cores: Fact[int]
    smt: Fact[bool]
    nodes: Fact[tuple[int, ...]]
    logical: tuple[LogicalCpu, ...]
    boost: Fact[bool]
    priority: PriorityCores
    measured: Fact[MeasuredCores]
    irqbalance_active: Fact[bool]
    irqbalance_banned: Fact[tuple[int, ...]]
    """CPUs irqbalance is told to leave alone, from its environment file."""
    irq_cpus: Fact[tuple[int, ...]]
    """CPUs to which at least one interrupt that software can move is set to go (``/proc/irq/*/smp_affinity_list``)."""
    irqs_immovable: Fact[int] = Unknown(unknown="not read")
    """Interrupts with a handler that the kernel does not let anybody move."""
    default_irq_cpus: Fact[tuple[int, ...]]
    """``/proc/irq/default_smp_affinity``."""
    cstate_latency_us: Fact[int]
    """The largest of ``LogicalCpu.cstate_latency_us``."""
    kernel_command_line: Fact[str]


class Memory(_Facts):
    """RAM, huge pages, limits."""

    total_kib: Fact[int]
    available_kib: Fact[int]
    cgroup_limit_kib: Fact[int]
    """Smallest memory limit on the probe's cgroup path; unset means Unknown("no limit"), see ``cgroup_limited``."""
    cgroup_limited: Fact[bool]
    huge_page_kib: Fact[int]
    huge_pages_total: Fact[int]
    huge_pages_free: Fact[int]
    swap_total_kib: Fact[int]
    swap_in_fstab: Fact[bool]
    thp: Fact[str]
    """The bracketed word of ``/sys/kernel/mm/transparent_hugepage/enabled``."""
    shm_kib: Fact[int]
    """Size of the /dev/shm file system."""
    node_total_kib: dict[str, Fact[int]]


class LiveLimits(_Facts):
    """Limits of a real process started the way the engine will be (``/proc/PID/limits``); -1 is unlimited."""

    process: str
    memlock_kib: Fact[int]
    nofile: Fact[int]


class Disk(_Facts):
    """One path the kit cares about."""

    path: str
    filesystem: Fact[str]
    total_kib: Fact[int]
    free_kib: Fact[int]
    read_only: Fact[bool]


class Package(_Facts):
    """An installed Debian package."""

    version: str
    held: bool
    candidate: Fact[str]


class Service(_Facts):
    """A systemd unit: the properties of the same names."""

    load: Fact[str]
    active: Fact[str]
    enabled: Fact[str]
    needs_daemon_reload: Fact[bool]
    result: Fact[str]
    since_boot_s: Fact[float]
    """Seconds after boot at which it last became active."""


class HostFile(_Facts):
    """A file the kit manages or reads, as it is on the host."""

    exists: bool
    sha256: Fact[str]
    mode: Fact[str]
    owner: Fact[str]
    group: Fact[str]
    content: Fact[str]
    """The text, when at most 64 KiB and not secret."""


class ClockLimits(_Facts):
    """Locked SM clock range; the unit that locks them records what it read back."""

    minimum_mhz: int
    maximum_mhz: int


class Gpu(_Facts):
    """One GPU through NVML, and its SM count through the CUDA driver."""

    index: int
    name: Fact[str]
    uuid: Fact[str]
    pci_bus_id: Fact[str]
    sms: Fact[int]
    """``cuDeviceGetAttribute(MULTIPROCESSOR_COUNT)`` from libcuda: the authority."""
    cores_over_128: Fact[float]
    """``nvmlDeviceGetNumGpuCores / 128``: the cross-check."""
    compute_capability: Fact[str]
    memory_mib: Fact[int]
    sm_clock_mhz: Fact[int]
    max_sm_clock_mhz: Fact[int]
    locked_sm_clock: Fact[ClockLimits]
    clock_reasons: Fact[tuple[str, ...]]
    power_limit_w: Fact[float]
    power_limit_default_w: Fact[float]
    power_limit_min_w: Fact[float]
    power_limit_max_w: Fact[float]
    power_draw_w: Fact[float]
    temperature_c: Fact[int]
    persistence: Fact[bool]
    compute_mode: Fact[str]
    mig_current: Fact[bool]
    mig_pending: Fact[bool]
    ecc_current: Fact[bool]
    ecc_pending: Fact[bool]
    ecc_uncorrected: Fact[int]
    remapped_uncorrectable: Fact[int]
    remap_pending: Fact[bool]
    remap_failed: Fact[bool]
    recovery_action: Fact[str]
    """``none``, ``gpu_reset``, ``node_reboot``, ``drain_p2p``, ``drain_and_reset``."""
    nvlinks_active: Fact[int]
    p2p_nvlink: dict[str, Fact[bool]]
    """Other GPU's index -> whether P2P over NVLink is OK."""
    fabric_state: Fact[str]
    """``not_supported``, ``not_started``, ``in_progress``, ``completed``."""
    fabric_status: Fact[str]
    pcie_generation: Fact[int]
    pcie_generation_max: Fact[int]
    pcie_width: Fact[int]
    pcie_width_max: Fact[int]
    vbios: Fact[str]
    inforom: Fact[str]
    numa_node: Fact[int]


class GpuStack(_Facts):
    """Driver, libraries and the GPUs. Unknown as a whole where no part of an NVIDIA stack is on the host;
    ``gpus`` alone is Unknown when NVML did not answer in time. A fact that GPU or driver lacks is Unknown("not supported")."""

    driver_version: Fact[str]
    """From the loaded kernel module (``/sys/module/nvidia/version``, else ``/proc/driver/nvidia/version``)."""
    library_version: Fact[str]
    """From NVML itself."""
    cuda_version: Fact[str]
    fabric_manager_version: Fact[str]
    gpus: Fact[tuple[Gpu, ...]]
    xids_since_boot: Fact[tuple[str, ...]]
    """``<seconds> <pci> <xid>`` lines of the kernel log of this boot."""


class BurnIn(_Facts):
    """Bandwidth and memory checks of ``probe --burn-in``; Unknown until it ran in this boot, with this driver and these GPUs."""

    nccl_all_reduce_gbps: Fact[float]
    nvlink_gbps: Fact[float]
    """One way, of the slowest pair."""
    hbm_ok: Fact[bool]
    measured: Fact[MeasuredBurnIn] = Unknown(unknown="not measured")


class Docker(_Facts):
    """The container engine as it runs (not as its file says)."""

    version: Fact[str]
    live_restore: Fact[bool]
    log_driver: Fact[str]
    data_root: Fact[str]
    cdi_devices: Fact[tuple[str, ...]]
    running_containers: Fact[int]


class Firewall(_Facts):
    """The rule set as the kernel has it."""

    table_text: Fact[str]
    """``nft --stateless list table inet b300kit``, empty text when the table is not there."""
    listening_tcp: Fact[tuple[str, ...]]
    """``address:port`` of listening sockets."""


class Membership(_Facts):
    """Whether a router sends this host traffic: the marker that ``join`` leaves, and running engines."""

    joined: Fact[bool]
    marker: Fact[str]
    engine_active: Fact[bool]


class Facts(_Facts):
    """Everything the plan looks at, read at one moment."""

    schema_version: int
    collected_at: str
    """UTC, ISO 8601, the host's clock."""
    seconds: float
    """How long the probe ran on the host."""
    privileged: bool
    """Whether it ran as root; without it much is Unknown."""
    host: Host
    cpu: Cpu
    memory: Memory
    limits: LiveLimits
    disks: tuple[Disk, ...]
    packages: dict[str, Fact[Package]]
    """Asked names; Unknown("not installed") for those absent."""
    services: dict[str, Service]
    sysctls: dict[str, Fact[str]]
    files: dict[str, HostFile]
    users: dict[str, Fact[str]]
    """name -> ``uid:gid:groups:home:shell`` (groups comma-joined, sorted), Unknown("no such user")."""
    gpu: Fact[GpuStack]
    burn_in: BurnIn
    docker: Docker
    firewall: Firewall
    membership: Membership
    notes: tuple[str, ...] = ()
    """What the probe wants said, for example a tool that is not installed."""


def parse(document: Any) -> Facts:
    """Typed facts from the probe's JSON.

    Raises pydantic.ValidationError when the probe and this model disagree: a fault of ours, not of the host.
    """
    return Facts.model_validate(document)
