"""Persistence, power limit and locked SM clock of every GPU (b300kit-gpu.service), through the driver's library by ctypes.

NVML has no call that returns a locked clock. It is judged by what it does: with the lower and the upper bound equal, the
SM clock stands at the bound, at rest too, unless power, heat or an outer brake holds it down, and NVML says which.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from typing import Any

from kit.plan.onhost.common import ReadBack, arguments, finish, settled

CLOCK_SM = 1
READY_WAIT_S = 60
"""The driver may still be coming up at boot."""
CLOCK_STEP_MHZ = 15
"""SM clocks move in steps of 15 MHz; the bound is rounded to one."""
POWER_STEP_W = 1.0
BRAKES = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "hardware power brake",
}


class NvmlError(Exception):
    """An NVML call failed: its name and NVML's own words."""


class Nvml:
    """The few NVML calls needed here."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name: str, *values: Any) -> None:
        """Call by name; NvmlError unless it succeeds."""
        try:
            function = getattr(self.library, name)
        except AttributeError as error:
            raise NvmlError(f"{name}: not in this driver's library") from error
        code = function(*values)
        if code:
            raise NvmlError(f"{name}: {self.library.nvmlErrorString(code).decode(errors='replace')}")

    def number(self, name: str, device: Any, *values: Any, kind: Any = ctypes.c_uint) -> int:
        """A call whose answer is one number through a pointer in the last place."""
        value = kind()
        self.call(name, device, *values, ctypes.byref(value))
        return int(value.value)

    def devices(self) -> list[Any]:
        """Handles of all GPUs, in index order."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            handles.append(handle)
        return handles

    def uuid(self, device: Any) -> str:
        """The GPU's UUID."""
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(96))
        return text.value.decode()

    def power_w(self, device: Any) -> float:
        """Power limit in watts."""
        return self.number("nvmlDeviceGetPowerManagementLimit", device) / 1000

    def persistence(self, device: Any) -> bool:
        """Whether persistence mode is on."""
        return bool(self.number("nvmlDeviceGetPersistenceMode", device))

    def sm_clock(self, device: Any) -> int:
        """SM clock now, in MHz."""
        return self.number("nvmlDeviceGetClockInfo", device, ctypes.c_uint(CLOCK_SM))

    def brakes(self, device: Any) -> list[str]:
        """What holds the clock down now, in words. The call has an older name in older drivers."""
        try:
            reasons = self.number("nvmlDeviceGetCurrentClocksEventReasons", device, kind=ctypes.c_ulonglong)
        except NvmlError:
            reasons = self.number("nvmlDeviceGetCurrentClocksThrottleReasons", device, kind=ctypes.c_ulonglong)
        return [word for bit, word in BRAKES.items() if reasons & bit]


def main(argv: list[str]) -> int:
    """Set and read back every GPU."""
    asked = arguments(argv)
    want = json.loads(asked.config.read_text())
    # A record of an earlier run must not stand for this one.
    asked.result.unlink(missing_ok=True)
    gpus: list[dict[str, Any]] = []
    try:
        nvml = ready(want["count"])
        for device in nvml.devices():
            declare(nvml, device, want)
        gpus, wrong = settled(lambda: stand(nvml, want))
    except (NvmlError, OSError) as error:
        wrong = [str(error)]
    return finish(asked, {"gpus": gpus, "wrong": wrong})


def ready(count: int) -> Nvml:
    """NVML with all the declared GPUs; waits a while, as the driver loads during boot. NvmlError when it takes too long."""
    deadline = time.monotonic() + READY_WAIT_S
    while True:
        try:
            nvml = Nvml()
            found = len(nvml.devices())
            if found == count:
                return nvml
            trouble = f"{found} GPUs answer, declared are {count}"
        except (NvmlError, OSError) as error:
            trouble = str(error)
        if time.monotonic() >= deadline:
            raise NvmlError(trouble)
        time.sleep(1)


def declare(nvml: Nvml, device: Any, want: dict[str, Any]) -> None:
    """Set what differs. Persistence first: without it the others are lost as soon as the last client closes."""
    if nvml.persistence(device) != want["persistence"]:
        nvml.call("nvmlDeviceSetPersistenceMode", device, ctypes.c_uint(int(want["persistence"])))
    if abs(nvml.power_w(device) - want["power_limit_w"]) > POWER_STEP_W:
        nvml.call("nvmlDeviceSetPowerManagementLimit", device, ctypes.c_uint(want["power_limit_w"] * 1000))
    clock = ctypes.c_uint(want["sm_clock_mhz"])
    nvml.call("nvmlDeviceSetGpuLockedClocks", device, clock, clock)


def stand(nvml: Nvml, want: dict[str, Any]) -> ReadBack:
    """Every GPU as it is now. Power limits have been seen to revert right after boot, clocks follow a lock after a second."""
    gpus = [read_back(nvml, index, device) for index, device in enumerate(nvml.devices())]
    faults = [judge(gpu, want) for gpu in gpus]
    bound = {"minimum_mhz": want["sm_clock_mhz"], "maximum_mhz": want["sm_clock_mhz"]}
    for gpu, bad in zip(gpus, faults):  # noqa: B905  Python 3.9
        gpu["locked_sm_clock"] = None if bad else bound
    return gpus, [text for bad in faults for text in bad]


def read_back(nvml: Nvml, index: int, device: Any) -> dict[str, Any]:
    """One GPU as it is now."""
    return {
        "index": index,
        "uuid": nvml.uuid(device),
        "persistence": nvml.persistence(device),
        "power_limit_w": nvml.power_w(device),
        "sm_clock_mhz": nvml.sm_clock(device),
        "brakes": nvml.brakes(device),
    }


def judge(gpu: dict[str, Any], want: dict[str, Any]) -> list[str]:
    """What of one GPU is not as declared."""
    name = f"GPU {gpu['index']}"
    faults = []
    if gpu["persistence"] != want["persistence"]:
        faults.append(f"{name}: persistence is {gpu['persistence']}")
    if not abs(gpu["power_limit_w"] - want["power_limit_w"]) <= POWER_STEP_W:
        faults.append(f"{name}: power limit is {gpu['power_limit_w']} W, declared is {want['power_limit_w']} W")
    off = gpu["sm_clock_mhz"] - want["sm_clock_mhz"]
    held_down = off < 0 and gpu["brakes"]
    if not abs(off) <= CLOCK_STEP_MHZ and not held_down:
        faults.append(f"{name}: SM clock is {gpu['sm_clock_mhz']} MHz after locking it to {want['sm_clock_mhz']} MHz")
    return faults


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
