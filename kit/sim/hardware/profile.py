"""What simulated hardware is: data files under ``profiles/``, one a kind of host, checked here.

A profile may build on another (``base``) and then holds only what differs. Pure but for reading the file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from kit.errors import ExitCode, KitError, failure

PROFILES = Path(__file__).resolve().parent.parent / "profiles"
Refusal = Annotated[str, StringConstraints(pattern=r"^(unsupported|error [0-9]{1,3})$")]
"""What the call that asks for the value answers instead: NOT_SUPPORTED, or an NVML error code."""
Number = Annotated[int, Field(ge=-1)] | Refusal
Text = Annotated[str, StringConstraints(pattern=r"^[^\n]{1,200}$")]


class _Data(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Gpu(_Data):
    """One GPU as the driver would tell it. Units in the names."""

    name: Text
    uuid: Text
    bus_id: Text
    serial: Text
    vbios: Text
    inforom: Text
    pci_device_id: Number
    pci_subsystem_id: Number
    sms: Number
    cores: Number
    cc_major: Number
    cc_minor: Number
    memory_mib: Number
    memory_reserved_mib: Number
    clock_sm_mhz: Number
    clock_sm_max_mhz: Number
    clock_memory_mhz: Number
    clock_memory_max_mhz: Number
    clock_reasons: Number
    performance_state: Number
    power_limit_mw: Number = Field(description="At boot; what is set later is lost at reboot.")
    power_limit_default_mw: Number
    power_limit_min_mw: Number
    power_limit_max_mw: Number
    power_draw_mw: Number
    temperature: Number
    persistence: Number = Field(description="At boot, before nvidia-persistenced.")
    compute_mode: Number
    mig_current: Number
    mig_pending: Number
    ecc_current: Number
    ecc_pending: Number
    ecc_corrected: Number
    ecc_uncorrected: Number
    remap_correctable: Number
    remap_uncorrectable: Number
    remap_pending: Number
    remap_failed: Number
    recovery_action: Number
    fabric_state: Number
    fabric_status: Number
    fabric_health_mask: Number
    fabric_health_summary: Number
    nvlinks: Number
    nvlink_version: Number
    nvlink_mbps: Number
    p2p: Number
    hbm_gbps: Number = Field(description="Memory bandwidth that a program measures, GB/s.")
    hbm_fault_mib: Number = Field(description="Where one word of the memory does not hold what is written; -1: nowhere.")
    p2p_gbps: Number = Field(description="Copies from this GPU to another, GB/s.")
    nccl_gbps: Number = Field(description="NCCL's bus bandwidth; the lowest of all GPUs counts.")
    pcie_generation: Number
    pcie_generation_max: Number
    pcie_width: Number
    pcie_width_max: Number
    numa_node: int = Field(description="What sysfs says of the PCI device.")
    numa_node_id: Number = Field(description="What NVML says: only coherent GPUs have memory of their own as a node.")
    cpus: Text


class Driver(_Data):
    """Versions of what NVIDIA ships, which a half-done upgrade makes differ."""

    module: Text
    library: Text
    fabric_manager: Text
    cuda: int
    init_error: int = 0
    persistence_mode: bool = Field(description="Whether nvidia-persistenced switches persistence on when it starts.")


class Cpu(_Data):
    """Processors: ``packages * cores_per_package`` physical cores, ``threads`` each, one NUMA node a package."""

    model: Text
    packages: Annotated[int, Field(ge=1, le=4)]
    cores_per_package: Annotated[int, Field(ge=1, le=256)]
    threads: Literal[1, 2]
    base_khz: int
    slow_khz: int
    fast_khz: int
    fast_positions: tuple[tuple[int, ...], ...] = Field(description="For each package, which of its cores are fast.")
    smear: bool = Field(description="Spread the cores' highest frequencies evenly from slow to fast: no clear gap.")
    turbo_freq: Literal["supported", "unsupported"]
    governor: Literal["powersave", "performance"]

    @property
    def cores(self) -> int:
        """Physical ones."""
        return self.packages * self.cores_per_package

    @property
    def logical(self) -> int:
        """Logical ones."""
        return self.cores * self.threads

    @model_validator(mode="after")
    def _positions_exist(self) -> Cpu:
        if len(self.fast_positions) != self.packages:
            raise ValueError(f"fast_positions has {len(self.fast_positions)} lists for {self.packages} packages")
        for positions in self.fast_positions:
            if any(not 0 <= p < self.cores_per_package for p in positions):
                raise ValueError(f"fast_positions {positions} is not within 0..{self.cores_per_package - 1}")
        return self


class Profile(_Data):
    """A kind of simulated host."""

    summary: Text
    driver: Driver
    gpu_count: Annotated[int, Field(ge=0, le=16)]
    gpus: tuple[Gpu, ...]
    cpu: Cpu
    memory_limit_mib: Annotated[int, Field(ge=256)] | None
    kernel_log: tuple[Text, ...]


def for_machine(profile: Profile, packages: int, cores_per_package: int) -> Profile:
    """The profile on a machine that really has so many processors, one thread a core. Every second core is fast where the
    profile has fast ones; each GPU's processors are those of its node. Pure."""
    fast = tuple(tuple(range(0, cores_per_package, 2)) if positions else () for positions in profile.cpu.fast_positions)
    shape = {"packages": packages, "cores_per_package": cores_per_package, "threads": 1, "fast_positions": fast[:packages]}
    cpu = Cpu.model_validate({**profile.cpu.model_dump(), **shape})
    gpus = tuple(
        gpu.model_copy(update={"cpus": f"{gpu.numa_node * cores_per_package}-{(gpu.numa_node + 1) * cores_per_package - 1}"})
        for gpu in profile.gpus
    )
    return profile.model_copy(update={"cpu": cpu, "gpus": gpus})


def names() -> list[str]:
    """Every profile there is."""
    return sorted(path.stem for path in PROFILES.glob("*.yml"))


def _merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    result = dict(under)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result


def _document(name: str, seen: tuple[str, ...] = ()) -> dict[str, Any]:
    if name in seen:
        raise ValueError(f"profiles build on each other in a circle: {' -> '.join([*seen, name])}")
    document: dict[str, Any] = yaml.safe_load((PROFILES / f"{name}.yml").read_text())
    base = document.pop("base", None)
    return document if base is None else _merged(_document(base, (*seen, name)), document)


def expand(document: dict[str, Any]) -> Profile:
    """A merged document as a profile: ``gpu`` is every GPU, ``each_gpu`` lists what differs by slot, ``gpu_overrides`` what
    is special about one. Raises pydantic.ValidationError. Pure."""
    rest = dict(document)
    common, each, special = rest.pop("gpu"), rest.pop("each_gpu"), rest.pop("gpu_overrides", {})
    gpus = [{**common, **each[index], **special.get(index, {})} for index in range(rest["gpu_count"])]
    return Profile.model_validate({**rest, "gpus": gpus})


def load(name: str) -> Profile:
    """The profile of that name. Raises KitError(USAGE, ``sim.profile``) when there is none or the file is wrong."""
    if name not in names():
        raise KitError(
            failure("sim.profile", "--profile", f"one of {', '.join(names())}", name, "choose one of these"), ExitCode.USAGE
        )
    try:
        return expand(_document(name))
    except (ValidationError, ValueError, KeyError, IndexError) as error:
        raise KitError(
            failure("sim.profile", str(PROFILES / f"{name}.yml"), "a valid profile", str(error), "correct the file"),
            ExitCode.USAGE,
        ) from error


def gpu_facts(profile: Profile) -> str:
    """The stubs' facts file (see ``stubs/hardware.h``). Pure."""
    driver = profile.driver
    lines = [
        f"system.driver {driver.library}",
        f"system.nvml 13.{driver.library}",
        f"system.cuda {driver.cuda}",
        f"system.count {profile.gpu_count}",
        f"system.init_error {driver.init_error}",
    ]
    for index, gpu in enumerate(profile.gpus):
        lines += [f"gpu.{index}.{key} {value}" for key, value in gpu.model_dump().items()]
    return "\n".join(lines) + "\n"
