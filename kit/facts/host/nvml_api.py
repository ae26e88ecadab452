"""NVML's C interface: exactly the names, numbers and structures that are used. Compared with nvidia-ml-py by a test."""

from __future__ import annotations

import ctypes
from typing import Any

from kit.facts.host.read import Unreadable

LIBRARY = "libnvidia-ml.so.1"
NOT_SUPPORTED_TEXT = "not supported"
"""The whole reason of a fact that the GPU or driver does not have, as opposed to one that could not be read."""

SUCCESS = 0
INVALID_ARGUMENT = 2
NOT_SUPPORTED = 3
INSUFFICIENT_SIZE = 7
FUNCTION_NOT_FOUND = 13

ERRORS: dict[int, str] = {
    1: "uninitialized",
    2: "invalid argument",
    3: NOT_SUPPORTED_TEXT,
    4: "no permission",
    6: "not found",
    7: "insufficient size",
    9: "driver not loaded",
    10: "timeout",
    12: "library not found",
    13: "function not found",
    14: "corrupted inforom",
    15: "GPU is lost",
    16: "reset required",
    17: "operating system",
    18: "driver/library version mismatch",
    19: "in use",
    20: "memory",
    21: "no data",
    25: "argument version mismatch",
    27: "not ready",
    28: "GPU not found",
    29: "invalid state",
    999: "unknown error",
}

CLOCK_SM = 1
TEMPERATURE_GPU = 0
ECC_VOLATILE = 0
ERROR_UNCORRECTED = 1
P2P_NVLINK = 2
P2P_OK = 0
P2P_UNKNOWN = 6
NVLINK_MAX_LINKS = 36
AFFINITY_NODE = 0
FIELD_RECOVERY_ACTION = 230

COMPUTE_MODES = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu_reset",
    2: "node_reboot",
    3: "drain_p2p",
    4: "drain_and_reset",
    5: "recover_imex_domain",
    6: "bus_reset",
    7: "system_reboot",
}
CLOCK_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
    0x200: "board_limit",
    0x400: "reliability",
}


class Memory(ctypes.Structure):
    """nvmlMemory_v2_t; bytes."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("total", ctypes.c_ulonglong),
        ("reserved", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


class PciInfo(ctypes.Structure):
    """nvmlPciInfo_t as nvmlDeviceGetPciInfo_v3 fills it."""

    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_v2_t. ``state`` is one byte in C, padded."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("clusterUuid", ctypes.c_ubyte * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_ubyte),
        ("healthMask", ctypes.c_uint),
    ]


class Value(ctypes.Union):
    """nvmlValue_t."""

    _fields_ = [
        ("dVal", ctypes.c_double),
        ("uiVal", ctypes.c_uint),
        ("ulVal", ctypes.c_ulong),
        ("ullVal", ctypes.c_ulonglong),
        ("sllVal", ctypes.c_longlong),
    ]


class FieldValue(ctypes.Structure):
    """nvmlFieldValue_t."""

    _fields_ = [
        ("fieldId", ctypes.c_uint),
        ("scopeId", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", Value),
    ]


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_t as nvmlDeviceGetComputeRunningProcesses_v3 fills it."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    ]


def versioned(kind: Any, version: int) -> int:
    """NVML's structure version: size in the low bits, version in the top byte."""
    return int(ctypes.sizeof(kind)) | version << 24


class NvmlError(Unreadable):
    """A call that did not succeed; ``code`` is its nvmlReturn_t, FUNCTION_NOT_FOUND where this library lacks it."""

    def __init__(self, function: str, code: int) -> None:
        reason = ERRORS.get(code, f"error {code}")
        super().__init__(NOT_SUPPORTED_TEXT if code == NOT_SUPPORTED else f"{function}: {reason}")
        self.code = code


class Nvml:
    """The library, loaded. Raises Unreadable when it is not there."""

    def __init__(self, path: str = LIBRARY) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise Unreadable(f"no NVML: {error}") from None

    def call(self, function: str, *arguments: Any) -> None:
        """Raises NvmlError unless the function answers success."""
        try:
            found = getattr(self.library, function)
        except AttributeError:
            raise NvmlError(function, FUNCTION_NOT_FOUND) from None
        found.restype = ctypes.c_int
        code = found(*arguments)
        if code != SUCCESS:
            raise NvmlError(function, code)

    def text(self, function: str, *before: Any) -> str:
        """A function that fills a buffer."""
        buffer = ctypes.create_string_buffer(256)
        self.call(function, *before, buffer, ctypes.c_uint(len(buffer)))
        return buffer.value.decode("utf-8", "replace")

    def unsigned(self, function: str, *before: Any) -> int:
        """A function whose last argument is a pointer to unsigned int."""
        value = ctypes.c_uint()
        self.call(function, *before, ctypes.byref(value))
        return value.value

    def signed(self, function: str, *before: Any) -> int:
        """A function whose last argument is a pointer to int."""
        value = ctypes.c_int()
        self.call(function, *before, ctypes.byref(value))
        return value.value

    def wide(self, function: str, *before: Any) -> int:
        """A function whose last argument is a pointer to unsigned long long."""
        value = ctypes.c_ulonglong()
        self.call(function, *before, ctypes.byref(value))
        return value.value

    def pair(self, function: str, *before: Any) -> tuple[int, int]:
        """A function that fills two unsigned ints."""
        first, second = ctypes.c_uint(), ctypes.c_uint()
        self.call(function, *before, ctypes.byref(first), ctypes.byref(second))
        return first.value, second.value
