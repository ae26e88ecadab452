"""SM clocks around a measurement, from NVML: the conditions that a figure was taken under."""

from __future__ import annotations

import ctypes

from kit.facts.host import nvml_api as api
from kit.facts.host.gpu import short_bus_id
from kit.facts.host.nvml import Device
from kit.facts.host.read import Json, Unreadable, fact


class Clocks:
    """NVML, kept open. Each reading is known or not by itself."""

    def __init__(self) -> None:
        self._found = fact(self._devices)

    @staticmethod
    def _devices() -> dict[str, Device]:
        nvml = api.Nvml()
        nvml.call("nvmlInitWithFlags", ctypes.c_uint(0))
        handles = [ctypes.c_void_p() for _ in range(nvml.unsigned("nvmlDeviceGetCount_v2"))]
        for index, handle in enumerate(handles):
            nvml.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
        devices = [Device(nvml, handles, index) for index in range(len(handles))]
        return {short_bus_id(device.pci_bus_id()): device for device in devices}

    def sm_mhz(self, bus_id: str) -> Json:
        """MHz now; ``bus_id`` as CUDA writes it."""

        def read() -> int:
            if "unknown" in self._found:
                raise Unreadable(self._found["unknown"])
            device = self._found[short_bus_id(bus_id)]
            return int(device.nvml.unsigned("nvmlDeviceGetClockInfo", device.handle, ctypes.c_int(api.CLOCK_SM)))

        return fact(read)
