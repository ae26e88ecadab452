#!/usr/bin/python3
"""Sets priority cores, governor, C-states and interrupt affinity as declared, and reads each back.

Written by b300kit; run by b300kit-cpu.service at each boot, because all of this is lost at a reboot. Standard library
only, Python 3.9. Writes only what differs, so a second run changes nothing. Exit 0: all read back as declared; 1: not.

    cpu.py --config /etc/b300kit/cpu.json --result /run/b300kit/cpu.json [--root /]
"""

import argparse
import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

TOOL_TIMEOUT_S = 60


def main(argv):
    """Run every part, record what was read back, and say what is not as declared."""
    options = argparse.ArgumentParser()
    options.add_argument("--config", required=True)
    options.add_argument("--result", required=True)
    options.add_argument("--root", default="/")
    asked = options.parse_args(argv)
    config = json.loads(Path(asked.config).read_text())
    root = Path(asked.root)
    read_back = {}
    wrong = []
    for name, part in (("priority", priority), ("governor", governor), ("cstates", cstates), ("interrupts", interrupts)):
        if config.get(name) is None:
            read_back[name] = {"left": "alone"}
            continue
        try:
            read_back[name], faults = part(config[name], root)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            read_back[name], faults = {"error": str(error)}, [str(error)]
        wrong += [f"{name}: {fault}" for fault in faults]
    boot_id = (root / "proc/sys/kernel/random/boot_id").read_text().strip()
    record(Path(asked.result), {"schema_version": 1, "boot_id": boot_id, "read_back": read_back, "wrong": wrong})
    for line in wrong:
        print(line, file=sys.stderr)
    return 1 if wrong else 0


def record(path, document):
    """Write the result in one piece: a reader never sees half a file."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
        json.dump(document, file, indent=2, sort_keys=True)
        file.write("\n")
        os.fchmod(file.fileno(), 0o644)
    os.replace(file.name, path)


def read(path):
    """A one-line kernel file's text."""
    return path.read_text().strip()


def put(path, value):
    """Write a kernel file when it holds something else."""
    if read(path) != value:
        path.write_text(value)


def cpus(text):
    """Kernel list format to a set: ``0-2,5`` -> {0, 1, 2, 5}."""
    found = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def priority(want, root):
    """Priority Core Turbo: turbo-freq and core-power on, the declared CPUs in CLOS 0. ``want``: {"cpus": list text}."""
    tool = "intel-speed-select"
    before = clos_zero(tool, want["cpus"])
    if before != cpus(want["cpus"]):
        run([tool, "-c", want["cpus"], "turbo-freq", "enable", "--auto"])
    found = clos_zero(tool, want["cpus"])
    missing = cpus(want["cpus"]) - found
    return {"clos_0": sorted(found)}, [f"CPUs {sorted(missing)} are not in CLOS 0"] if missing else []


def clos_zero(tool, listed):
    """The CPUs among ``listed`` that the tool reports in CLOS 0. Its report goes to standard error on many versions."""
    done = run([tool, "-c", listed, "core-power", "get-assoc"])
    found, cpu = set(), None
    for line in (done.stdout + "\n" + done.stderr).splitlines():
        words = line.strip()
        if words.startswith("cpu-"):
            cpu = int(words[4:].split()[0].rstrip(":"))
        elif words.replace(" ", "") == "clos:0" and cpu is not None:
            found.add(cpu)
    return found


def run(argv):
    """A tool by argument list, with a time limit; its failure is this part's failure."""
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)


def governor(want, root):
    """The governor of every frequency policy. ``want``: its name."""
    found = {}
    for path in sorted((root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")):
        put(path, want)
        found[path.parent.parent.name] = read(path)
    bad = [f"{cpu} has {value}" for cpu, value in found.items() if value != want]
    return {"cpus": len(found), "governor": sorted(set(found.values()))}, bad if found else ["no CPU has a frequency policy"]


def cstates(want, root):
    """Disable C-states that wake too slowly. ``want``: {"max_latency_us": n, "cpus": list text}; others stay as they are."""
    deepest, bad = 0, []
    for cpu in sorted(cpus(want["cpus"])):
        for state in sorted((root / f"sys/devices/system/cpu/cpu{cpu}/cpuidle").glob("state[0-9]*")):
            latency = int(read(state / "latency"))
            slow = latency > want["max_latency_us"]
            put(state / "disable", "1" if slow else "0")
            if read(state / "disable") == "0":
                deepest = max(deepest, latency)
                if slow:
                    bad.append(f"cpu{cpu} {state.name} stays allowed")
    return {"deepest_allowed_us": deepest}, bad


def interrupts(want, root):
    """Every interrupt that can move goes to the declared CPUs. ``want``: {"cpus": list text, "mask": mask text}."""
    table = root / "proc/irq"
    allowed = cpus(want["cpus"])
    default = table / "default_smp_affinity"
    if mask_cpus(read(default)) != allowed:
        default.write_text(want["mask"])
    fixed, moved, bad = [], 0, []
    for folder in sorted(table.glob("[0-9]*"), key=lambda p: int(p.name)):
        path = folder / "smp_affinity_list"
        if not path.exists() or cpus(read(path)) == allowed:
            continue
        try:
            path.write_text(want["cpus"])
            moved += 1
        except OSError as error:
            # Per-CPU and kernel-managed interrupts (NVMe queues) refuse a new home: theirs is right as it is.
            if error.errno not in (errno.EIO, errno.EPERM, errno.EINVAL, errno.ENOSPC):
                raise
            fixed.append(int(folder.name))
            continue
        if cpus(read(path)) != allowed:
            bad.append(f"interrupt {folder.name} stays on {read(path)}")
    if mask_cpus(read(default)) != allowed:
        bad.append(f"new interrupts go to {read(default)}")
    return {"cpus": want["cpus"], "moved": moved, "fixed": fixed}, bad


def mask_cpus(mask):
    """Kernel mask format to a set: ``00000000,00000005`` -> {0, 2}."""
    value = int(mask.replace(",", ""), 16)
    return {bit for bit in range(value.bit_length()) if value >> bit & 1}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
