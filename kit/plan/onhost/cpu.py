"""Priority cores, governor, C-states, interrupt affinity (b300kit-cpu.service)."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

from kit.plan.onhost.common import Part, ReadBack, put, read, run, set_parts, settled

TOOL = "intel-speed-select"
AT_ONCE = 64
CPUS = "sys/devices/system/cpu"
REFUSED = (errno.EIO, errno.EPERM, errno.EINVAL)
"""What the kernel answers for an interrupt that cannot move: per-CPU ones, those it spreads itself (NVMe queues), and those
of a controller that has no such function. Not ENOSPC, which says that these CPUs have no free vector: they are too few."""


def cpus(text: str) -> set[int]:
    """Kernel list format: ``0-2,5`` -> {0, 1, 2, 5}."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return found


def mask_cpus(mask: str) -> set[int]:
    """Kernel mask format: ``00000000,00000005`` -> {0, 2}."""
    value = int(mask.replace(",", ""), 16)
    return {bit for bit in range(value.bit_length()) if value >> bit & 1}


def priority(want: dict[str, str], root: Path) -> ReadBack:
    """Priority Core Turbo: turbo-freq and core-power on, the declared CPUs in CLOS 0 and no other. ``want``: {"cpus": list text}.

    The association alone proves nothing: with core power off every CPU is in CLOS 0.
    """
    declared = cpus(want["cpus"])
    everywhere = sorted(cpus(read(root / CPUS / "online")))
    if states() != {"enabled"} or clos_zero(everywhere) != declared:
        run([TOOL, "-c", want["cpus"], "turbo-freq", "enable", "--auto"])

    def look() -> ReadBack:
        state, found = states(), clos_zero(everywhere)
        bad = []
        if state != {"enabled"}:
            bad.append(f"turbo-freq and core-power are {', '.join(sorted(state)) or 'not reported'}")
        if found != declared:
            bad.append(f"CLOS 0 holds CPUs {sorted(found)}, declared are {want['cpus']}")
        return {"states": sorted(state), "clos_0": sorted(found)}, bad

    return settled(look)


def report(*words: str) -> list[str]:
    """What the tool says, line by line. It reports on standard error in many versions."""
    done = run([TOOL, *words])
    return [line.strip().replace(" ", "") for line in (done.stdout + "\n" + done.stderr).splitlines()]


def states() -> set[str]:
    """State words of turbo-freq and core-power over all packages and power domains, at the level in force."""
    levels = [
        line.partition(":")[2]
        for line in report("perf-profile", "get-config-current-level")
        if "current_level:" in line or "current-level:" in line
    ]
    if not levels:
        raise ValueError("intel-speed-select names no current level")
    lines = report("perf-profile", "info", "-l", levels[0])
    return {line.partition(":")[2] for line in lines if line.startswith(("speed-select-turbo-freq:", "speed-select-core-power:"))}


def clos_zero(among: list[int]) -> set[int]:
    """The CPUs that the tool reports in CLOS 0. It takes no more than 64 at once in older versions."""
    found: set[int] = set()
    for start in range(0, len(among), AT_ONCE):
        cpu = -1
        for line in report("-c", ",".join(map(str, among[start : start + AT_ONCE])), "core-power", "get-assoc"):
            if line.startswith("cpu-"):
                cpu = int(line[4:].partition(":")[0])
            elif line == "clos:0" and cpu >= 0:
                found.add(cpu)
    return found


def governor(want: str, root: Path) -> ReadBack:
    """The governor of every CPU's frequency policy. ``want``: its name."""
    policies = sorted((root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor"))
    if not policies:
        return {}, ["no CPU has a frequency policy"]
    for path in policies:
        put(path, want)

    def look() -> ReadBack:
        found = {path.parent.parent.name: read(path) for path in policies}
        bad = [f"{cpu} has {value}" for cpu, value in found.items() if value != want]
        return {"cpus": len(found), "governors": sorted(set(found.values()))}, bad

    return settled(look)


def cstates(want: dict[str, Any], root: Path) -> ReadBack:
    """Disable C-states that wake too slowly. ``want``: {"max_latency_us": n, "cpus": list text}; other CPUs stay as they are."""
    states = {
        state: int(read(state / "latency"))
        for cpu in sorted(cpus(want["cpus"]))
        for state in sorted((root / CPUS / f"cpu{cpu}" / "cpuidle").glob("state[0-9]*"))
    }
    for state, latency in states.items():
        put(state / "disable", "1" if latency > want["max_latency_us"] else "0")

    def look() -> ReadBack:
        allowed = [state for state in states if read(state / "disable") == "0"]
        slow = [state for state in allowed if states[state] > want["max_latency_us"]]
        bad = [f"{state.parent.parent.name} {state.name} stays allowed" for state in slow]
        return {"deepest_allowed_us": max((states[state] for state in allowed), default=0)}, bad

    return settled(look)


def interrupts(want: dict[str, str], root: Path) -> ReadBack:
    """Every interrupt that can move goes to the declared CPUs. ``want``: {"cpus": list text, "mask": mask text}.

    Read back is what was set: it is delivered there from its next arrival on.
    """
    table = root / "proc/irq"
    allowed = cpus(want["cpus"])
    default = table / "default_smp_affinity"
    if mask_cpus(read(default)) != allowed:
        default.write_text(want["mask"])
    refused: dict[str, list[str]] = {}
    moved: list[Path] = []
    faults: list[str] = []
    for folder in sorted(table.glob("[0-9]*"), key=lambda path: int(path.name)):
        path = folder / "smp_affinity_list"
        try:
            # One that irqbalance gave a single CPU of these stays there.
            if cpus(read(path)) <= allowed:
                continue
            path.write_text(want["cpus"])
            moved.append(path)
        except FileNotFoundError:
            continue  # an interrupt can go away while we look
        except OSError as error:
            if error.errno in REFUSED:
                refused[folder.name] = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
            else:
                faults.append(f"interrupt {folder.name}: {error.strerror}")

    def look() -> ReadBack:
        now = {path.parent.name: read(path) for path in moved if path.exists()}
        bad = [f"interrupt {number} stays on {listed}" for number, listed in now.items() if not cpus(listed) <= allowed]
        if mask_cpus(read(default)) != allowed:
            bad.append(f"new interrupts go to {read(default)}")
        return {"cpus": want["cpus"], "moved": len(moved), "refused": refused}, bad

    found, bad = settled(look)
    return found, faults + bad


PARTS: dict[str, Part] = {"priority": priority, "governor": governor, "cstates": cstates, "interrupts": interrupts}

if __name__ == "__main__":
    sys.exit(set_parts(sys.argv[1:], PARTS))
