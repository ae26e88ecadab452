"""Priority cores, governor, C-states, interrupt affinity (b300kit-cpu.service)."""

from __future__ import annotations

import errno
import sys
from pathlib import Path
from typing import Any

from kit.plan.onhost.common import Part, put, read, run, set_parts, stands

TOOL = "intel-speed-select"
AT_ONCE = 64
CPUS = "sys/devices/system/cpu"
FIXED = (errno.EIO, errno.EPERM, errno.EINVAL, errno.ENOSPC)
"""What the kernel answers for an interrupt that cannot move: per-CPU ones, and those it spreads itself (NVMe queues)."""


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


def priority(want: dict[str, str], root: Path) -> tuple[Any, list[str]]:
    """Priority Core Turbo: turbo-freq and core-power on, the declared CPUs in CLOS 0 and no other. ``want``: {"cpus": list text}.

    The association alone proves nothing: with core power off every CPU is in CLOS 0.
    """
    declared = cpus(want["cpus"])
    everywhere = sorted(cpus(read(root / CPUS / "online")))
    if states() != {"enabled"} or clos_zero(everywhere) != declared:
        run([TOOL, "-c", want["cpus"], "turbo-freq", "enable", "--auto"])
    state, found = states(), clos_zero(everywhere)
    bad = []
    if state != {"enabled"}:
        bad.append(f"turbo-freq and core-power are {', '.join(sorted(state)) or 'not reported'}")
    if found != declared:
        bad.append(f"CLOS 0 holds CPUs {sorted(found)}, declared are {want['cpus']}")
    return {"states": sorted(state), "clos_0": sorted(found)}, bad


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


def governor(want: str, root: Path) -> tuple[Any, list[str]]:
    """The governor of every CPU's frequency policy. ``want``: its name."""
    found: dict[str, str] = {}
    for path in sorted((root / CPUS).glob("cpu[0-9]*/cpufreq/scaling_governor")):
        put(path, want)
        found[path.parent.parent.name] = read(path)
    if not found:
        return {}, ["no CPU has a frequency policy"]
    bad = [f"{cpu} has {value}" for cpu, value in found.items() if value != want]
    return {"cpus": len(found), "governors": sorted(set(found.values()))}, bad


def cstates(want: dict[str, Any], root: Path) -> tuple[Any, list[str]]:
    """Disable C-states that wake too slowly. ``want``: {"max_latency_us": n, "cpus": list text}; other CPUs stay as they are."""
    deepest = 0
    bad: list[str] = []
    for cpu in sorted(cpus(want["cpus"])):
        for state in sorted((root / CPUS / f"cpu{cpu}" / "cpuidle").glob("state[0-9]*")):
            latency = int(read(state / "latency"))
            slow = latency > want["max_latency_us"]
            put(state / "disable", "1" if slow else "0")
            if read(state / "disable") == "0":
                deepest = max(deepest, latency)
                if slow:
                    bad.append(f"cpu{cpu} {state.name} stays allowed")
    return {"deepest_allowed_us": deepest}, bad


def interrupts(want: dict[str, str], root: Path) -> tuple[Any, list[str]]:
    """Every interrupt that can move goes to the declared CPUs. ``want``: {"cpus": list text, "mask": mask text}."""
    table = root / "proc/irq"
    allowed = cpus(want["cpus"])
    default = table / "default_smp_affinity"
    if mask_cpus(read(default)) != allowed:
        default.write_text(want["mask"])
    fixed: list[int] = []
    moved = 0
    bad: list[str] = []
    for folder in sorted(table.glob("[0-9]*"), key=lambda path: int(path.name)):
        path = folder / "smp_affinity_list"
        try:
            if cpus(read(path)) == allowed:
                continue
            path.write_text(want["cpus"])
        except FileNotFoundError:
            continue  # an interrupt can go away while we look
        except OSError as error:
            if error.errno not in FIXED:
                raise
            fixed.append(int(folder.name))
            continue
        moved += 1
        if not stands(lambda path=path: cpus(read(path)), allowed):  # type: ignore[misc]
            bad.append(f"interrupt {folder.name} stays on {read(path)}")
    if mask_cpus(read(default)) != allowed:
        bad.append(f"new interrupts go to {read(default)}")
    return {"cpus": want["cpus"], "moved": moved, "fixed": fixed}, bad


PARTS: dict[str, Part] = {"priority": priority, "governor": governor, "cstates": cstates, "interrupts": interrupts}

if __name__ == "__main__":
    sys.exit(set_parts(sys.argv[1:], PARTS))
