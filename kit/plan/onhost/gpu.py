#!/usr/bin/python3
"""Sets persistence, power limit and the locked SM clock of every GPU as declared, and reads each back.

Written by b300kit; run by b300kit-gpu.service at each boot, after nvidia-persistenced, because all of this is lost at a
reboot and at a driver reload. Talks to the driver's own library (NVML) through ctypes; standard library only, Python 3.9.
Exit 0: all read back as declared; 1: not.

    gpu.py --config /etc/b300kit/gpu.json --result /run/b300kit/gpu.json

NVML has no call that returns a locked clock. It is judged by what it does: with the lower and upper bound equal, the SM
clock stands at the bound, at rest too, unless power, heat or an outer brake holds it down, and NVML says which.
"""

import argparse
import ctypes
import json
import os
import sys
import tempfile
import time
from pathlib import Path

CLOCK_SM = 1
READY_WAIT_S = 60
"""The driver may still be coming up at boot."""
SETTLE_WAIT_S = 10
"""Clocks follow a lock within a second or two; power limits have been seen to revert right after boot."""
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

    def __init__(self):
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self.library.nvmlErrorString.restype = ctypes.c_char_p
        self.call("nvmlInit_v2")

    def call(self, name, *arguments):
        """Call by name; NvmlError unless it succeeds."""
        try:
            function = getattr(self.library, name)
        except AttributeError as error:
            raise NvmlError(f"{name}: not in this driver's library") from error
        code = function(*arguments)
        if code:
            raise NvmlError(f"{name}: {self.library.nvmlErrorString(code).decode(errors='replace')}")

    def number(self, name, device, *arguments, kind=ctypes.c_uint):
        """A call whose answer is one number through a pointer in the last place."""
        value = kind()
        self.call(name, device, *arguments, ctypes.byref(value))
        return value.value

    def devices(self):
        """Handles of all GPUs, in index order."""
        count = ctypes.c_uint()
        self.call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        handles = []
        for index in range(count.value):
            handle = ctypes.c_void_p()
            self.call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(handle))
            handles.append(handle)
        return handles

    def uuid(self, device):
        """The GPU's UUID."""
        text = ctypes.create_string_buffer(96)
        self.call("nvmlDeviceGetUUID", device, text, ctypes.c_uint(96))
        return text.value.decode()

    def power_w(self, device):
        """Power limit in watts."""
        return self.number("nvmlDeviceGetPowerManagementLimit", device) / 1000

    def persistence(self, device):
        """Whether persistence mode is on."""
        return bool(self.number("nvmlDeviceGetPersistenceMode", device))

    def sm_clock(self, device):
        """SM clock now, in MHz."""
        return self.number("nvmlDeviceGetClockInfo", device, ctypes.c_uint(CLOCK_SM))

    def brakes(self, device):
        """What holds the clock down now, in words."""
        try:
            reasons = self.number("nvmlDeviceGetCurrentClocksEventReasons", device, kind=ctypes.c_ulonglong)
        except NvmlError:
            reasons = self.number("nvmlDeviceGetCurrentClocksThrottleReasons", device, kind=ctypes.c_ulonglong)
        return [word for bit, word in BRAKES.items() if reasons & bit]


def main(argv):
    """Set and read back every GPU; record it; say what is not as declared."""
    options = argparse.ArgumentParser()
    options.add_argument("--config", required=True)
    options.add_argument("--result", required=True)
    asked = options.parse_args(argv)
    want = json.loads(Path(asked.config).read_text())
    result = Path(asked.result)
    # A record of an earlier run must not stand for this one.
    result.unlink(missing_ok=True)
    gpus, wrong = [], []
    try:
        nvml = ready(want["count"])
        for device in nvml.devices():
            apply(nvml, device, want)
        gpus, wrong = settled(nvml, want)
    except (NvmlError, OSError) as error:
        wrong = [str(error)]
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record(result, {"schema_version": 1, "boot_id": boot_id, "gpus": gpus, "wrong": wrong})
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def ready(count):
    """NVML with all the declared GPUs; waits a while, as the driver loads during boot."""
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


def apply(nvml, device, want):
    """Set what differs. Persistence first: without it the others are lost as soon as the last client closes."""
    if nvml.persistence(device) != want["persistence"]:
        nvml.call("nvmlDeviceSetPersistenceMode", device, ctypes.c_uint(int(want["persistence"])))
    if abs(nvml.power_w(device) - want["power_limit_w"]) > POWER_STEP_W:
        nvml.call("nvmlDeviceSetPowerManagementLimit", device, ctypes.c_uint(want["power_limit_w"] * 1000))
    clock = ctypes.c_uint(want["sm_clock_mhz"])
    nvml.call("nvmlDeviceSetGpuLockedClocks", device, clock, clock)


def settled(nvml, want):
    """Read every GPU until all stand as declared, or the time for settling is over."""
    deadline = time.monotonic() + SETTLE_WAIT_S
    while True:
        gpus = [read_back(nvml, index, device) for index, device in enumerate(nvml.devices())]
        wrong = [fault for gpu in gpus for fault in judge(gpu, want)]
        if not wrong or time.monotonic() >= deadline:
            for gpu in gpus:
                locked = not any(fault.startswith(f"GPU {gpu['index']}:") for fault in wrong)
                gpu["locked_sm_clock"] = (
                    {"minimum_mhz": want["sm_clock_mhz"], "maximum_mhz": want["sm_clock_mhz"]} if locked else None
                )
            return gpus, wrong
        time.sleep(0.5)


def read_back(nvml, index, device):
    """One GPU as it is now."""
    return {
        "index": index,
        "uuid": nvml.uuid(device),
        "persistence": nvml.persistence(device),
        "power_limit_w": nvml.power_w(device),
        "sm_clock_mhz": nvml.sm_clock(device),
        "brakes": nvml.brakes(device),
    }


def judge(gpu, want):
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


def record(path, document):
    """Write the result in one piece: a reader never sees half a file."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        json.dump(document, file, indent=2, sort_keys=True)
        file.write("\n")
        os.fchmod(file.fileno(), 0o644)
    os.replace(file.name, path)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
