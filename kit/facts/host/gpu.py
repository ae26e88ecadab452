"""The NVIDIA stack: driver against libraries, the GPUs as two killable children see them, and the kernel's Xid messages."""

from __future__ import annotations

import json
import os
import re
from functools import partial

from kit.facts.host.child import Child
from kit.facts.host.packages import matching, upstream
from kit.facts.host.read import Json, Unreadable, fact, find_program, is_unknown, output, run, text, unknown

CLOCK_RECORD = "/run/b300kit/gpu.json"
_CLOCK_SLACK_MHZ = 15
"""One step of the SM clock."""
_BRAKES = frozenset({"sw_power_cap", "hw_slowdown", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"})
"""What may hold a locked clock below its lock; the boot unit judges by the same (``kit/plan/onhost/gpu.py``)."""
_XID = re.compile(r"^\[\s*(\d+\.\d+)\].*NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+)")


def driver_version() -> str:
    """Of the loaded kernel module."""
    try:
        return text("/sys/module/nvidia/version")
    except FileNotFoundError:
        words = text("/proc/driver/nvidia/version")
    match = re.search(r"\s(\d{3,}\.\d+(?:\.\d+)?)\s", words.splitlines()[0])
    if not match:
        raise Unreadable(f"/proc/driver/nvidia/version is not understood: {words[:80]!r}")
    return match.group(1)


def present() -> bool:
    """Whether any part of an NVIDIA stack is on this host: a module, a device, or a library."""
    if os.path.exists("/sys/module/nvidia") or os.path.exists("/proc/driver/nvidia") or os.path.exists("/dev/nvidiactl"):
        return True
    cache = fact(lambda: output(["ldconfig", "-p"]))
    return not is_unknown(cache) and "libnvidia-ml.so.1" in cache


def fabric_manager_version(every: Json) -> str:
    """Of the program; of its package when the program does not answer."""
    if find_program("nv-fabricmanager"):
        match = re.search(r"(\d{3,}\.\d+(?:\.\d+)?)", output(["nv-fabricmanager", "--version"], 5))
        if match:
            return match.group(1)
    versions = matching(every, r"^(nvidia-fabricmanager|nvlsm)")
    named = matching(every, r"^nvidia-fabricmanager")
    if named or versions:
        return upstream((named or versions)[0])
    raise Unreadable("Fabric Manager is not installed")


def xids() -> list[str]:
    """``<seconds> <pci> <xid>`` lines of this boot, from the journal, or from the kernel's ring buffer without one."""
    reasons: list[str] = []
    base = ["journalctl", "--quiet", "--no-pager", "-k", "-b", "-o", "short-monotonic"]
    try:
        status, newest, err = run([*base, "-n", "1"], 5)
        if status == 0 and newest.strip():
            status, out, err = run([*base, "--grep", "NVRM: Xid"], 15)
            if status == 0 or (status == 1 and not err.strip()):
                return parse_xids(out)
        reasons.append(f"the journal holds no kernel messages: {err.strip()[:120] or 'empty'}")
    except Unreadable as error:
        reasons.append(str(error))
    try:
        ring = output(["dmesg"], 5)
        found = parse_xids(ring)
        if found or from_the_start(ring):
            return found
        reasons.append("the kernel's ring buffer has lost its beginning")
    except Unreadable as error:
        reasons.append(str(error))
    raise Unreadable("; ".join(reasons))


def from_the_start(words: str) -> bool:
    """Whether a kernel log begins with the boot: the ring buffer drops its oldest lines."""
    first = re.match(r"^\[\s*(\d+\.\d+)\]", words.lstrip())
    return first is not None and float(first.group(1)) < 1.0


def parse_xids(words: str) -> list[str]:
    """Lines of a kernel log with seconds since boot in brackets."""
    found = [_XID.match(line) for line in words.splitlines()]
    return [" ".join(match.groups()) for match in found if match]


def short_bus_id(bus_id: str) -> str:
    """NVML's ``00000000:1B:00.0`` as the kernel and CUDA write it: ``0000:1b:00.0``."""
    match = re.match(r"^([0-9a-f]+):([0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])$", bus_id.lower())
    if not match:
        raise Unreadable(f"not a PCI address: {bus_id!r}")
    return f"{int(match.group(1), 16):04x}:{match.group(2)}"


def sms_of(gpu: Json, devices: Json, position: int, count: int) -> int:
    """SM count of one GPU: matched by PCI address, by position only when CUDA gives no address and sees as many devices."""
    if is_unknown(devices):
        raise Unreadable(devices["unknown"])
    if devices and all(is_unknown(device["pci_bus_id"]) for device in devices):
        if len(devices) != count:
            raise Unreadable(f"CUDA sees {len(devices)} devices, NVML {count}")
        chosen = devices[position]
    else:
        if is_unknown(gpu["pci_bus_id"]):
            raise Unreadable("no PCI address to match with CUDA")
        own = short_bus_id(gpu["pci_bus_id"])
        known = [device for device in devices if not is_unknown(device["pci_bus_id"])]
        chosen = next((device for device in known if short_bus_id(device["pci_bus_id"]) == own), None)
        if chosen is None:
            raise Unreadable(f"CUDA does not see this GPU ({len(devices)} devices)")
    if is_unknown(chosen["sms"]):
        raise Unreadable(chosen["sms"]["unknown"])
    return int(chosen["sms"])


def numa_node(gpu: Json, cpu_nodes: dict[int, int]) -> int:
    """NUMA node of the GPU's bus: from sysfs, else from NVML's affinity when that names exactly one."""
    if not is_unknown(gpu["pci_bus_id"]):
        found = fact(lambda: int(text(f"/sys/bus/pci/devices/{short_bus_id(gpu['pci_bus_id'])}/numa_node")))
        if not is_unknown(found) and found >= 0:
            return int(found)
    if not is_unknown(gpu["_nodes"]) and len(gpu["_nodes"]) == 1:
        return int(gpu["_nodes"][0])
    if not is_unknown(gpu["_cpus"]):
        nodes = {cpu_nodes[cpu] for cpu in gpu["_cpus"] if cpu in cpu_nodes}
        if len(nodes) == 1:
            return nodes.pop()
    raise Unreadable("neither sysfs nor NVML names one node")


def clock_record(boot_id: str) -> Json:
    """GPU UUID -> {"minimum_mhz", "maximum_mhz"}, or None where locking failed, as the boot unit found in this boot."""
    document = json.loads(text(CLOCK_RECORD))
    if document["boot_id"] != boot_id:
        raise Unreadable(f"{CLOCK_RECORD} is from another boot")
    return {entry["uuid"]: entry["locked_sm_clock"] for entry in document["gpus"]}


def locked_clock(gpu: Json, record: Json) -> Json:
    """Locked SM clock range. NVML has no getter, so it is what the boot unit recorded, unless the clock contradicts it:
    a locked clock stands at its lock, at rest too."""
    if is_unknown(record):
        raise Unreadable(record["unknown"])
    if is_unknown(gpu["uuid"]):
        raise Unreadable("the GPU has no UUID to look it up by")
    if gpu["uuid"] not in record:
        raise Unreadable(f"{CLOCK_RECORD} does not name this GPU")
    entry = record[gpu["uuid"]]
    if entry is None:
        raise Unreadable(f"{CLOCK_RECORD} says that the clock did not stay locked")
    low, high = int(entry["minimum_mhz"]), int(entry["maximum_mhz"])
    now, reasons = gpu["sm_clock_mhz"], gpu["clock_reasons"]
    if is_unknown(now):
        raise Unreadable(f"recorded as {low}-{high} MHz, but the SM clock is not known: {now['unknown']}")
    held_down = not is_unknown(reasons) and not _BRAKES.isdisjoint(reasons)
    if now > high + _CLOCK_SLACK_MHZ or (now < low - _CLOCK_SLACK_MHZ and not held_down):
        raise Unreadable(f"recorded as {low}-{high} MHz, but the SM clock reads {now} MHz and no power or heat limit says why")
    return {"minimum_mhz": low, "maximum_mhz": high}


def start(timeout_s: float) -> tuple[Child, Child] | None:
    """Both children, or None where there is no NVIDIA stack."""
    return (Child("nvml", timeout_s), Child("cuda", timeout_s)) if present() else None


def read(children: tuple[Child, Child] | None, every: Json, boot_id: str, cpu_nodes: dict[int, int], log: Json) -> Json:
    """The ``gpu`` part. ``every``: installed packages; ``log``: from :func:`xids`."""
    if children is None:
        return unknown("no NVIDIA driver or library on this host")
    nvml, cuda = fact(children[0].result), fact(children[1].result)
    devices = cuda if is_unknown(cuda) else cuda["devices"]
    record = fact(lambda: clock_record(boot_id))

    def of(name: str) -> Json:
        return unknown("NVML: " + nvml["unknown"]) if is_unknown(nvml) else nvml[name]

    gpus = of("gpus")
    if not is_unknown(gpus):
        for position, gpu in enumerate(gpus):
            gpu["sms"] = fact(partial(sms_of, gpu, devices, position, len(gpus)))
            gpu["numa_node"] = fact(partial(numa_node, gpu, cpu_nodes))
            gpu["locked_sm_clock"] = fact(partial(locked_clock, gpu, record))
            del gpu["_nodes"], gpu["_cpus"], gpu["_processes"]
    return {
        "driver_version": fact(driver_version),
        "library_version": of("library_version"),
        "cuda_version": of("cuda_version"),
        "fabric_manager_version": fact(lambda: fabric_manager_version(every)),
        "gpus": gpus,
        "xids_since_boot": log,
    }
