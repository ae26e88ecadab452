"""Reads every GPU through NVML. Runs in a child process, because NVML can hang in the kernel."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from kit.facts.host import nvml_api as api
from kit.facts.host.child import answer, doing
from kit.facts.host.read import Json, Unreadable, fact, is_unknown, text, unknown


def library_version(nvml: api.Nvml) -> str:
    """NVML's own release, which needs no driver: ``13.580.65.06`` names CUDA's major, then the driver's release.

    Where the library does not say, the name of the file that was loaded does: ``libnvidia-ml.so.580.65.06``.
    """
    try:
        version = nvml.text("nvmlSystemGetNVMLVersion")
    except api.NvmlError:
        loaded = re.search(r"libnvidia-ml\.so\.(\d{3,}(?:\.\d+)+)$", text("/proc/self/maps"), re.MULTILINE)
        if not loaded:
            raise
        return loaded.group(1)
    match = re.match(r"^\d+\.(\d{3,}(?:\.\d+)+)$", version)
    return match.group(1) if match else version


def cuda_version(nvml: api.Nvml) -> str:
    """``13.0``."""
    value = nvml.signed("nvmlSystemGetCudaDriverVersion_v2")
    return f"{value // 1000}.{value % 1000 // 10}"


class Device:
    """One GPU; each method reads one fact and raises Unreadable."""

    def __init__(self, nvml: api.Nvml, handles: list[Any], index: int) -> None:
        self.nvml, self.handles, self.index = nvml, handles, index
        self.handle = handles[index]

    def number(self, function: str) -> int:
        return self.nvml.unsigned(function, self.handle)

    def text(self, function: str) -> str:
        return self.nvml.text(function, self.handle)

    def watts(self, function: str) -> float:
        return self.number(function) / 1000.0

    def pci_bus_id(self) -> str:
        info = api.PciInfo()
        self.nvml.call("nvmlDeviceGetPciInfo_v3", self.handle, ctypes.byref(info))
        return str(info.busId.decode())

    def memory_mib(self) -> int:
        info = api.Memory()
        info.version = api.versioned(api.Memory, 2)
        self.nvml.call("nvmlDeviceGetMemoryInfo_v2", self.handle, ctypes.byref(info))
        return int(info.total) // (1024 * 1024)

    def compute_capability(self) -> str:
        major, minor = self.nvml.pair("nvmlDeviceGetCudaComputeCapability", self.handle)
        return f"{major}.{minor}"

    def clock_reasons(self) -> list[str]:
        try:
            bits = self.nvml.wide("nvmlDeviceGetCurrentClocksEventReasons", self.handle)
        except api.NvmlError as error:
            if error.code != api.FUNCTION_NOT_FOUND:
                raise
            bits = self.nvml.wide("nvmlDeviceGetCurrentClocksThrottleReasons", self.handle)
        return [api.CLOCK_REASONS.get(1 << n, f"bit_{n}") for n in range(64) if bits >> n & 1]

    def power_constraints(self) -> Json:
        return list(self.nvml.pair("nvmlDeviceGetPowerManagementLimitConstraints", self.handle))

    def remapped(self) -> Json:
        values = [ctypes.c_uint() for _ in range(4)]
        self.nvml.call("nvmlDeviceGetRemappedRows", self.handle, *[ctypes.byref(value) for value in values])
        return [value.value for value in values]

    def recovery_action(self) -> str:
        field = api.FieldValue()
        field.fieldId = api.FIELD_RECOVERY_ACTION
        self.nvml.call("nvmlDeviceGetFieldValues", self.handle, ctypes.c_int(1), ctypes.byref(field))
        if field.nvmlReturn != api.SUCCESS:
            raise api.NvmlError(f"field {api.FIELD_RECOVERY_ACTION}", field.nvmlReturn)
        return _name(api.RECOVERY_ACTIONS, int(field.value.uiVal))

    def nvlinks_active(self) -> int:
        active, seen = 0, 0
        for link in range(api.NVLINK_MAX_LINKS):
            try:
                active += self.nvml.unsigned("nvmlDeviceGetNvLinkState", self.handle, ctypes.c_uint(link)) != 0
                seen += 1
            except api.NvmlError as error:
                if error.code == api.INVALID_ARGUMENT:
                    break
                if error.code != api.NOT_SUPPORTED:
                    raise
        if not seen:
            raise api.NvmlError("nvmlDeviceGetNvLinkState", api.NOT_SUPPORTED)
        return active

    def p2p_nvlink(self, other: int) -> bool:
        status = self.nvml.signed("nvmlDeviceGetP2PStatus", self.handle, self.handles[other], ctypes.c_int(api.P2P_NVLINK))
        if status >= api.P2P_UNKNOWN:
            raise Unreadable("NVML does not know the P2P status")
        return status == api.P2P_OK

    def fabric(self) -> Json:
        info = api.FabricInfo()
        info.version = api.versioned(api.FabricInfo, 2)
        self.nvml.call("nvmlDeviceGetGpuFabricInfoV", self.handle, ctypes.byref(info))
        state = _name(api.FABRIC_STATES, info.state)
        status = "success" if info.status == api.SUCCESS else api.ERRORS.get(info.status, f"error {info.status}")
        return [state, status]

    def compute_processes(self) -> list[int]:
        """Process ids with a CUDA context on it; as many as fit when there are very many."""
        room = (api.ProcessInfo * 256)()
        count = ctypes.c_uint(len(room))
        try:
            self.nvml.call("nvmlDeviceGetComputeRunningProcesses_v3", self.handle, ctypes.byref(count), room)
        except api.NvmlError as error:
            if error.code != api.INSUFFICIENT_SIZE:
                raise
        return [entry.pid for entry in room[: min(count.value, len(room))]]

    def memory_affinity(self) -> list[int]:
        return self._set("nvmlDeviceGetMemoryAffinity", 4, ctypes.c_uint(api.AFFINITY_NODE))

    def cpu_affinity(self) -> list[int]:
        return self._set("nvmlDeviceGetCpuAffinity", 64)

    def _set(self, function: str, words: int, *after: Any) -> list[int]:
        buffer = (ctypes.c_ulong * words)()
        self.nvml.call(function, self.handle, ctypes.c_uint(words), buffer, *after)
        size = 8 * ctypes.sizeof(ctypes.c_ulong)
        return [word * size + bit for word in range(words) for bit in range(size) if buffer[word] >> bit & 1]

    def read(self) -> Json:
        """All of it. ``sms`` and ``locked_sm_clock`` are filled in by the parent; ``_nodes``, ``_cpus`` and
        ``_processes`` are for it only."""

        def one(reader: Callable[[], Json], name: str) -> Json:
            doing(f"GPU {self.index} {name}")
            return fact(reader)

        def number(function: str) -> Json:
            return one(lambda: self.number(function), function)

        def watts(function: str) -> Json:
            return one(lambda: self.watts(function), function)

        def text(function: str) -> Json:
            return one(lambda: self.text(function), function)

        def flags(function: str) -> Json:
            return one(lambda: [bool(value) for value in self.nvml.pair(function, self.handle)], function)

        mig = flags("nvmlDeviceGetMigMode")
        ecc = flags("nvmlDeviceGetEccMode")
        limits = one(self.power_constraints, "power constraints")
        rows = one(self.remapped, "remapped rows")
        fabric = one(self.fabric, "fabric")
        sm = ctypes.c_int(api.CLOCK_SM)
        kind, scope = ctypes.c_int(api.ERROR_UNCORRECTED), ctypes.c_int(api.ECC_VOLATILE)
        others = [other for other in range(len(self.handles)) if other != self.index]
        return {
            "index": self.index,
            "name": text("nvmlDeviceGetName"),
            "uuid": text("nvmlDeviceGetUUID"),
            "pci_bus_id": one(self.pci_bus_id, "nvmlDeviceGetPciInfo_v3"),
            "cores_over_128": one(lambda: self.number("nvmlDeviceGetNumGpuCores") / 128.0, "nvmlDeviceGetNumGpuCores"),
            "compute_capability": one(self.compute_capability, "compute capability"),
            "memory_mib": one(self.memory_mib, "memory"),
            "sm_clock_mhz": one(lambda: self.nvml.unsigned("nvmlDeviceGetClockInfo", self.handle, sm), "clock"),
            "max_sm_clock_mhz": one(lambda: self.nvml.unsigned("nvmlDeviceGetMaxClockInfo", self.handle, sm), "clock"),
            "clock_reasons": one(self.clock_reasons, "clock reasons"),
            "power_limit_w": watts("nvmlDeviceGetPowerManagementLimit"),
            "power_limit_default_w": watts("nvmlDeviceGetPowerManagementDefaultLimit"),
            "power_limit_min_w": _part(limits, 0, lambda milli: milli / 1000.0),
            "power_limit_max_w": _part(limits, 1, lambda milli: milli / 1000.0),
            "power_draw_w": watts("nvmlDeviceGetPowerUsage"),
            "temperature_c": one(
                lambda: self.nvml.unsigned("nvmlDeviceGetTemperature", self.handle, ctypes.c_int(api.TEMPERATURE_GPU)),
                "temperature",
            ),
            "persistence": one(lambda: self.number("nvmlDeviceGetPersistenceMode") == 1, "persistence"),
            "compute_mode": one(lambda: _name(api.COMPUTE_MODES, self.number("nvmlDeviceGetComputeMode")), "compute mode"),
            "mig_current": _part(mig, 0),
            "mig_pending": _part(mig, 1),
            "ecc_current": _part(ecc, 0),
            "ecc_pending": _part(ecc, 1),
            "ecc_uncorrected": one(lambda: self.nvml.wide("nvmlDeviceGetTotalEccErrors", self.handle, kind, scope), "ECC errors"),
            "remapped_uncorrectable": _part(rows, 1),
            "remap_pending": _part(rows, 2, bool),
            "remap_failed": _part(rows, 3, bool),
            "recovery_action": one(self.recovery_action, "recovery action"),
            "nvlinks_active": one(self.nvlinks_active, "NVLink"),
            "p2p_nvlink": {str(n): one(partial(self.p2p_nvlink, n), f"P2P with GPU {n}") for n in others},
            "fabric_state": _part(fabric, 0),
            "fabric_status": _part(fabric, 1),
            "pcie_generation": number("nvmlDeviceGetCurrPcieLinkGeneration"),
            "pcie_generation_max": number("nvmlDeviceGetMaxPcieLinkGeneration"),
            "pcie_width": number("nvmlDeviceGetCurrPcieLinkWidth"),
            "pcie_width_max": number("nvmlDeviceGetMaxPcieLinkWidth"),
            "vbios": text("nvmlDeviceGetVbiosVersion"),
            "inforom": text("nvmlDeviceGetInforomImageVersion"),
            "_nodes": one(self.memory_affinity, "memory affinity"),
            "_cpus": one(self.cpu_affinity, "CPU affinity"),
            "_processes": one(self.compute_processes, "compute processes"),
        }


def _part(values: Json, index: int, convert: Callable[[Any], Json] = lambda value: value) -> Json:
    return values if isinstance(values, dict) else convert(values[index])


def _name(names: dict[int, str], value: int) -> str:
    return names.get(value, f"value_{value}")


def read() -> Json:
    """``library_version``, ``cuda_version`` and ``gpus``; each can be unknown by itself."""
    doing("loading the library")
    try:
        nvml = api.Nvml()
    except Unreadable as error:
        return {name: unknown(str(error)) for name in ("library_version", "cuda_version", "gpus")}
    library = fact(lambda: library_version(nvml))
    doing("nvmlInitWithFlags")
    try:
        nvml.call("nvmlInitWithFlags", ctypes.c_uint(0))
        doing("nvmlDeviceGetCount_v2")
        count = nvml.unsigned("nvmlDeviceGetCount_v2")
    except api.NvmlError as error:
        return {"library_version": library, "cuda_version": unknown(str(error)), "gpus": unknown(str(error))}
    handles: list[Any] = []
    gpus: Json = []
    try:
        for index in range(count):
            doing(f"GPU {index} handle")
            handle = ctypes.c_void_p()
            nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            handles.append(handle)
        gpus = [Device(nvml, handles, index).read() for index in range(count)]
    except api.NvmlError as error:
        gpus = unknown(f"GPU {len(handles)} of {count}: {error}")
    if is_unknown(library):
        library = fact(lambda: library_version(nvml))
    return {"library_version": library, "cuda_version": fact(lambda: cuda_version(nvml)), "gpus": gpus}


def main() -> int:
    """Child process."""
    return answer(read())
