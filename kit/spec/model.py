"""What an operator declares: one fleet file, one file a host, one lock. Frozen, typed, no unknown key.

Units are in the names. Versions are not here: they live in the lock.
"""

from __future__ import annotations

from ipaddress import IPv4Network, IPv6Network
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, WithJsonSchema

NAME = r"^[a-z0-9][a-z0-9-]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
"""A host, group, image or profile: lower-case letters, digits, hyphens."""
Address = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.:-]{0,252}$")]
Port = Annotated[int, Field(ge=1, le=65535)]
PortRange = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?$"),
    BeforeValidator(lambda value: str(value) if type(value) is int else value),
    WithJsonSchema({"anyOf": [{"type": "integer"}, {"type": "string", "pattern": "^[0-9]{1,5}(-[0-9]{1,5})?$"}]}),
]
"""``30000`` or ``30000-30007``."""
UserName = Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_-]{0,31}$")]
PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]{1,99}$")]
AbsolutePath = Annotated[str, StringConstraints(pattern=r"^(/[A-Za-z0-9_][A-Za-z0-9._-]*)+$")]
"""Absolute, plain characters, no ``..`` and no hidden parts."""
HostKey = Annotated[
    str, StringConstraints(pattern=r"^(ssh-ed25519|ecdsa-sha2-nistp(256|384|521)|ssh-rsa) [A-Za-z0-9+/]{32,2048}={0,3}$")
]
Version = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+:~-]{0,99}$")]
DriverVersion = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,5}(\.[0-9]{1,5}){1,3}$")]
"""Numbers that can be compared, e.g. 580.65.06: below a word like `latest` nothing would ever be."""
Network = IPv4Network | IPv6Network
KeyFile = Annotated[str, StringConstraints(pattern=r"^~?(/\.?[A-Za-z0-9_-][A-Za-z0-9_.-]*)+$")]
"""A file on the control machine, from / or ~/; no character that ssh or a shell would expand, no ``..``."""
GpuModel = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9 ._()/+-]{0,127}$")]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=False)


class Connection(_Spec):
    """How to reach the host. The host key is pinned here; there is no trust on first use."""

    address: Address
    port: Port = 22
    user: UserName
    host_key: HostKey
    identity_file: KeyFile | None = Field(None, description="Private key file on the control machine; the ssh agent otherwise.")


class Driver(_Spec):
    """Who installs the NVIDIA driver and Fabric Manager; which versions is the lock's business."""

    minimum: DriverVersion = Field(description="Lowest driver accepted, e.g. 580.65.06; CUDA 13 needs 580.")
    manage: Literal["check", "install"] = "check"
    packages: tuple[PackageName, ...] = Field((), description="For `install`: taken from the operator's own apt source.")
    fabric_manager: bool = True


class Pcie(_Spec):
    """The link each GPU must have trained to."""

    generation: Annotated[int, Field(ge=1, le=8)]
    width: Annotated[int, Field(ge=1, le=32)]


class Gpus(_Spec):
    """What every GPU of the host must be."""

    model: GpuModel
    count: Annotated[int, Field(ge=1, le=16)]
    sms: Annotated[int, Field(ge=1, le=1024)]
    compute_capability: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,2}\.[0-9]$")]
    memory_mib: Annotated[int, Field(ge=1024)]
    power_limit_w: Annotated[int, Field(ge=50, le=3000)]
    sm_clock_mhz: Annotated[int, Field(ge=100, le=5000)]
    persistence: bool = True
    mig: bool = False
    ecc: bool = True
    nvlink: Literal["all_pairs", "none"] = "all_pairs"
    fabric: Literal["completed", "absent"] = "completed"
    fabric_wait_s: Annotated[int, Field(ge=0, le=600)] = 20
    pcie: Pcie | None = None
    driver: Driver


class FastCores(_Spec):
    """The cores that reach the higher clock, and how much proof of them is enough."""

    count: Annotated[int, Field(ge=1, le=1024)]
    mhz: Annotated[int, Field(ge=500, le=10000)]
    slow_mhz: Annotated[int, Field(ge=500, le=10000)] | None = None
    evidence: Literal["hint", "measured"] = "hint"
    priority_core_turbo: Literal["if_supported", "required", "leave"] = "if_supported"


class Cpus(_Spec):
    """Processor layout and tuning."""

    packages: Annotated[int, Field(ge=1, le=16)]
    physical_cores: Annotated[int, Field(ge=1, le=2048)]
    fast_cores: FastCores
    os_cores: Annotated[int, Field(ge=1, le=256)] = Field(
        2, description="Physical slow cores left to the operating system and interrupts."
    )
    governor: Literal["performance", "schedutil", "powersave", "ondemand"] = "performance"
    interrupts: Literal["off_serving_cores", "leave"] = "off_serving_cores"
    max_cstate_latency_us: Annotated[int, Field(ge=0, le=10000)] | None = Field(
        None, description="Deepest C-state exit latency allowed on serving cores; null leaves C-states alone."
    )


class HiCache(_Spec):
    """Host memory for SGLang's hierarchical cache. Give `ratio` with `device_pool_gib`, or `size_gib`; both per rank."""

    ratio: Annotated[float, Field(gt=0, le=64)] | None = None
    device_pool_gib: Annotated[float, Field(gt=0, le=1024)] | None = Field(
        None, description="KV pool of one GPU; the host pool is ratio times this."
    )
    size_gib: Annotated[float, Field(gt=0, le=4096)] | None = None
    write_policy: Literal["write_through", "write_through_selective", "write_back"] = "write_through_selective"


class HugePages(_Spec):
    """Reserved huge pages. They are lost to everything else: 0 unless something asks for them."""

    size_kib: Literal[2048, 1048576] = 2048
    count: Annotated[int, Field(ge=0, le=4194304)] = 0


class Memory(_Spec):
    """RAM and limits."""

    total_gib_min: Annotated[float, Field(gt=0)]
    hicache: HiCache
    reserve_gib: Annotated[float, Field(ge=0)] = Field(10, description="Left free beyond all rank pools.")
    memlock_kib: Literal["unlimited"] | Annotated[int, Field(ge=64)] = "unlimited"
    nofile: Annotated[int, Field(ge=1024, le=1073741816)] = 1048576
    shm_gib: Annotated[float, Field(gt=0, le=4096)] = 32
    huge_pages: HugePages = HugePages()
    swap: bool = False
    transparent_huge_pages: Literal["always", "madvise", "never"] = "madvise"
    swappiness: Annotated[int, Field(ge=0, le=200)] = 10


class Packages(_Spec):
    """Packages whose version must not move by itself."""

    hold: tuple[PackageName, ...] = ()


class Docker(_Spec):
    """The container engine."""

    package: PackageName = "docker.io"
    service: Literal["docker"] = "docker"
    live_restore: bool = True
    log_max_size_mib: Annotated[int, Field(ge=1, le=10240)] = 100
    log_max_files: Annotated[int, Field(ge=1, le=100)] = 5
    cdi: bool = True
    data_root: AbsolutePath = "/var/lib/docker"


class PortAccess(_Spec):
    """Ports of the node and the networks that may reach them."""

    ports: PortRange
    from_: tuple[Network, ...] = Field((), alias="from")
    open_to_everyone: bool = Field(
        False, description="Must be true where `from` covers all addresses: nothing is opened to the world by a slip."
    )


class NetworkAccess(_Spec):
    """Who may reach what. SSH is never filtered by this kit."""

    engine: PortAccess
    metrics: PortAccess | None = None
    nccl: PortAccess | None = None

    def groups(self) -> dict[str, PortAccess]:
        """Those that are declared, by name."""
        named = {"engine": self.engine, "metrics": self.metrics, "nccl": self.nccl}
        return {name: port for name, port in named.items() if port is not None}


class BurnIn(_Spec):
    """Floors an operator trusts a rented node by, judged on what `probe --burn-in` measured; `absent` says: not judged."""

    nccl_all_reduce_gbps: Annotated[float, Field(gt=0)] | Literal["absent"] = Field(
        "absent", description="Bus bandwidth of NCCL's all-reduce over all GPUs, GB/s (10^9 bytes)."
    )
    nvlink_gbps: Annotated[float, Field(gt=0)] | Literal["absent"] = Field(
        "absent", description="Copies between two GPUs, one way, GB/s (10^9 bytes); the slowest pair counts."
    )
    hbm: Literal["required", "absent"] = Field(
        "absent", description="Patterns in nearly all memory read back right, and no uncorrected ECC error meanwhile."
    )
    nccl_library: AbsolutePath | None = Field(
        None, description="NCCL's file on the host, where the loader does not find libnccl.so.2 by itself."
    )
    same_firmware: bool = True
    clock_synchronized: bool = True


class HostSpec(_Spec):
    """One host, declared. The file's name is the host's name."""

    schema_version: Literal[1]
    name: Name
    connection: Connection
    gpus: Gpus
    cpu: Cpus
    memory: Memory
    packages: Packages = Packages()
    docker: Docker = Docker()
    network: NetworkAccess
    burn_in: BurnIn = BurnIn()
    service_user: UserName = "b300kit"
    data_dir: AbsolutePath = "/var/lib/b300kit"
    image: Name
    engine: Name


class FleetFile(_Spec):
    """`fleet.yml`: which hosts there are and how they are grouped."""

    schema_version: Literal[1]
    groups: dict[Name, tuple[Name, ...]] = Field(default_factory=dict)
    forks: Annotated[int, Field(ge=1, le=256)] = 16
    ssh_connect_timeout_s: Annotated[int, Field(ge=1, le=120)] = 10


class Lock(_Spec):
    """`lock.yml`: exact versions. null means not resolved yet, and what needs it refuses."""

    schema_version: Literal[1]
    driver: Version | None
    fabric_manager: Version | None
    packages: dict[PackageName, Version | None] = Field(default_factory=dict)


class Fleet(_Spec):
    """All that was declared, by host name."""

    directory: str
    file: FleetFile
    lock: Lock
    hosts: dict[Name, HostSpec]
