"""SM counts from the CUDA driver, the authority for them. Runs in a child process: cuInit can hang. Makes no context."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

from kit.facts.host.child import answer, doing
from kit.facts.host.read import Json, Unreadable, fact, unknown

LIBRARY = "libcuda.so.1"
MULTIPROCESSOR_COUNT = 16
_NAMES = {
    2: "out of memory",
    3: "not initialized",
    34: "stub library",
    100: "no device",
    101: "invalid device",
    214: "uncorrectable ECC error",
    217: "no peer access between these GPUs",
    218: "invalid PTX",
    220: "uncorrectable NVLink error",
    222: "PTX newer than this driver",
    700: "illegal address",
    719: "launch failed",
    802: "system not yet initialized: the NVLink fabric is not up",
    803: "system driver mismatch",
    804: "forward compatibility not supported",
    999: "unknown error",
}


class Cuda:
    """The library, loaded. Raises Unreadable when it is not there."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL(LIBRARY)
        except OSError as error:
            raise Unreadable(f"no CUDA driver library: {error}") from None

    def call(self, function: str, *arguments: Any, good: tuple[int, ...] = (0,)) -> None:
        """Raises Unreadable unless the function answers success, or another of the ``good`` codes."""
        try:
            found = getattr(self.library, function)
        except AttributeError:
            raise Unreadable(f"{function}: not in this library") from None
        found.restype = ctypes.c_int
        code = found(*arguments)
        if code not in good:
            raise Unreadable(f"{function}: error {code} ({_NAMES.get(code, 'see cuda.h')})")

    def integer(self, function: str, *after: Any) -> int:
        """A function whose first argument is a pointer to int."""
        value = ctypes.c_int()
        self.call(function, ctypes.byref(value), *after)
        return value.value


def _bus_id(cuda: Cuda, device: int) -> str:
    buffer = ctypes.create_string_buffer(32)
    cuda.call("cuDeviceGetPCIBusId", buffer, ctypes.c_int(len(buffer)), ctypes.c_int(device))
    return buffer.value.decode()


def read() -> Json:
    """``devices``: one entry a CUDA device in PCI order, each with ``pci_bus_id`` and ``sms``."""
    try:
        doing("loading the library")
        cuda = Cuda()
        doing("cuInit")
        cuda.call("cuInit", ctypes.c_uint(0))
        doing("cuDeviceGetCount")
        count = cuda.integer("cuDeviceGetCount")
        devices: list[Json] = []
        for index in range(count):
            doing(f"device {index}")
            device = cuda.integer("cuDeviceGet", ctypes.c_int(index))
            attribute, handle = ctypes.c_int(MULTIPROCESSOR_COUNT), ctypes.c_int(device)
            devices.append(
                {
                    "pci_bus_id": fact(partial(_bus_id, cuda, device)),
                    "sms": fact(partial(cuda.integer, "cuDeviceGetAttribute", attribute, handle)),
                }
            )
        return {"devices": devices}
    except Unreadable as error:
        return {"devices": unknown(str(error))}


def main() -> int:
    """Child process."""
    return answer(read())
