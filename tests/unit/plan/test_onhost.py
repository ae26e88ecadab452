"""The host scripts on a made-up root folder: set, read back, second run changes nothing, and say what will not move."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.plan import render

CPUS = "sys/devices/system/cpu"


class Host:
    """A root folder with a script to run on it."""

    def __init__(self, root: Path, name: str) -> None:
        self.root = root
        self.script = root / name
        self.script.write_text(render.script("/x", name).content)
        self.put("proc/sys/kernel/random/boot_id", "b-1")
        self.path = os.environ["PATH"]

    def put(self, path: str, text: str) -> Path:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text + "\n")
        return place

    def get(self, path: str) -> str:
        return (self.root / path).read_text().strip()

    def run(self, config: dict[str, Any]) -> tuple[int, dict[str, Any], str]:
        """Status, the record, and what was said."""
        (self.root / "config.json").write_text(json.dumps(config))
        result = self.root / "run" / "result.json"
        argv = [sys.executable, "-I", str(self.script), "--config", str(self.root / "config.json"), "--result", str(result)]
        done = subprocess.run(
            [*argv, "--root", str(self.root)], capture_output=True, text=True, timeout=30, check=False, env={"PATH": self.path}
        )
        return done.returncode, json.loads(result.read_text()), done.stderr


@pytest.fixture
def cpu(tmp_path: Path) -> Host:
    """Four CPUs with governors and C-states, three interrupts."""
    host = Host(tmp_path, "cpu.py")
    host.put(f"{CPUS}/online", "0-3")
    for n in range(4):
        host.put(f"{CPUS}/cpu{n}/cpufreq/scaling_governor", "powersave")
        for state, latency in enumerate((0, 2, 170)):
            host.put(f"{CPUS}/cpu{n}/cpuidle/state{state}/latency", str(latency))
            host.put(f"{CPUS}/cpu{n}/cpuidle/state{state}/disable", "0")
    host.put("proc/irq/default_smp_affinity", "f")
    for n in (24, 25, 30):
        host.put(f"proc/irq/{n}/smp_affinity_list", "0-3")
    return host


ALL = {
    "governor": "performance",
    "cstates": {"max_latency_us": 10, "cpus": "2-3"},
    "interrupts": {"cpus": "0-1", "mask": "00000003"},
    "priority": None,
}


def test_cpu_sets_and_reads_back(cpu: Host) -> None:
    status, record, said = cpu.run(ALL)
    assert (status, said, record["wrong"], record["boot_id"]) == (0, "", [], "b-1")
    assert cpu.get(f"{CPUS}/cpu2/cpufreq/scaling_governor") == "performance"
    assert cpu.get(f"{CPUS}/cpu2/cpuidle/state2/disable") == "1"
    assert cpu.get(f"{CPUS}/cpu0/cpuidle/state2/disable") == "0"
    assert cpu.get("proc/irq/25/smp_affinity_list") == "0-1"
    assert cpu.get("proc/irq/default_smp_affinity") == "00000003"
    assert record["read_back"]["interrupts"] == {"cpus": "0-1", "moved": 3, "refused": {}}
    assert record["read_back"]["cstates"] == {"deepest_allowed_us": 2}
    assert record["read_back"]["priority"] is None


def test_cpu_second_run_writes_nothing(cpu: Host) -> None:
    cpu.run(ALL)
    before = {path: path.stat().st_mtime_ns for path in cpu.root.rglob("*") if path.is_file() and "sys" in path.parts}
    assert cpu.run(ALL)[0] == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_cpu_without_frequency_policies_fails_and_still_does_the_rest(cpu: Host) -> None:
    for path in cpu.root.rglob("scaling_governor"):
        path.unlink()
    status, record, said = cpu.run(ALL)
    assert status == 1
    assert "governor: no CPU has a frequency policy" in said
    assert cpu.get("proc/irq/24/smp_affinity_list") == "0-1"
    assert record["wrong"]


def test_one_that_irqbalance_placed_well_stays_there(cpu: Host) -> None:
    cpu.put("proc/irq/25/smp_affinity_list", "1")
    assert cpu.run(ALL)[1]["read_back"]["interrupts"]["moved"] == 2
    assert cpu.get("proc/irq/25/smp_affinity_list") == "1"


REFUSING = r"""
import errno, os, pathlib, sys
answers = {answers}
plain = pathlib.Path.write_text
def write_text(self, *words, **more):
    if self.parent.name in answers:
        raise OSError(answers[self.parent.name], os.strerror(answers[self.parent.name]))
    return plain(self, *words, **more)
pathlib.Path.write_text = write_text
"""


def refusing(host: Host, answers: dict[str, int]) -> None:
    """The kernel's answers to a write to /proc/irq/N/smp_affinity_list: no folder of ours can give them."""
    text = host.script.read_text()
    future = "from __future__ import annotations\n"
    host.script.write_text(text.replace(future, future + REFUSING.format(answers=answers)))


def test_interrupts_that_the_kernel_does_not_let_move_are_recorded_with_their_handlers(cpu: Host) -> None:
    """EIO before Linux 6.12, EPERM since; EINVAL of a controller without the function."""
    (cpu.root / "proc/irq/24/nvme0q3").mkdir()
    refusing(cpu, {"24": errno.EIO, "25": errno.EPERM})
    status, record, said = cpu.run(ALL)
    assert (status, said) == (0, "")
    assert record["read_back"]["interrupts"] == {"cpus": "0-1", "moved": 1, "refused": {"24": ["nvme0q3"], "25": []}}
    assert cpu.get("proc/irq/30/smp_affinity_list") == "0-1"


def test_too_few_cpus_for_all_interrupts_is_a_fault_and_the_others_still_move(cpu: Host) -> None:
    refusing(cpu, {"24": errno.ENOSPC})
    status, record, said = cpu.run(ALL)
    assert status == 1
    assert "interrupts: interrupt 24: No space left on device" in said
    assert record["read_back"]["interrupts"] == {"cpus": "0-1", "moved": 2, "refused": {}}


LATE = r"""
import pathlib, threading, time
plain, thread = pathlib.Path.write_text, threading.Thread
def write_text(self, text, **more):
    if "{root}/sys/" not in str(self) and "{root}/proc/" not in str(self):
        return plain(self, text, **more)
    shown = "always [madvise] never" if self.name == "enabled" else text
    thread(target=lambda: (time.sleep(0.4), plain(self, shown)), daemon=True).start()
pathlib.Path.write_text = write_text
"""


@pytest.mark.parametrize("which", ["cpu", "memory"])
def test_every_setting_may_take_hold_late(which: str, request: pytest.FixtureRequest) -> None:
    """A simulated THP word follows its write after some 50 ms, a real clock after a second."""
    host = request.getfixturevalue(which)
    text = host.script.read_text()
    future = "from __future__ import annotations\n"
    host.script.write_text(text.replace(future, future + LATE.format(root=host.root)))
    status, record, said = host.run(ALL if which == "cpu" else MEMORY)
    assert (status, said, record["wrong"]) == (0, "", [])


SPEED_SELECT = r"""#!{python}
import json, sys
from pathlib import Path
state = Path("{root}/tool.json")
now = json.loads(state.read_text()) if state.exists() else {{"on": False, "clos": {{}}}}
words = sys.argv[1:]
out = sys.stderr.write
if "enable" in words:
    if {works}:
        now = {{"on": True, "clos": {{c: 0 if c in (2, 3) else 3 for c in range(4)}}}}
        state.write_text(json.dumps(now))
elif "get-config-current-level" in words:
    out(" package-0\n  die-0\n    cpu-0\n      get-config-current_level:0\n")
elif "info" in words:
    word = "enabled" if now["on"] else "disabled"
    out(" package-0\n    speed-select-turbo-freq:%s\n    speed-select-core-power:%s\n" % (word, word))
elif "get-assoc" in words:
    for cpu in words[1].split(","):
        out(" package-0\n  cpu-%s\n    get-assoc\n      clos:%s\n" % (cpu, now["clos"].get(cpu, 0)))
"""


def speed_select(host: Host, works: bool) -> None:
    """A tool that answers as intel-speed-select does: every CPU in CLOS 0 while core power is off."""
    folder = host.root / "bin"
    folder.mkdir()
    tool = folder / "intel-speed-select"
    tool.write_text(SPEED_SELECT.format(python=sys.executable, root=host.root, works=works))
    tool.chmod(0o755)
    host.path = f"{folder}:{host.path}"


def test_priority_cores_are_switched_on_and_read_back(cpu: Host) -> None:
    speed_select(cpu, works=True)
    status, record, said = cpu.run({"priority": {"cpus": "2-3"}})
    assert (status, said) == (0, "")
    assert record["read_back"]["priority"] == {"states": ["enabled"], "clos_0": [2, 3]}


def test_priority_cores_that_stay_off_fail(cpu: Host) -> None:
    speed_select(cpu, works=False)
    status, _, said = cpu.run({"priority": {"cpus": "2-3"}})
    assert status == 1
    assert "turbo-freq and core-power are disabled" in said
    assert "CLOS 0 holds CPUs [0, 1, 2, 3]" in said


def test_a_missing_tool_is_said(cpu: Host) -> None:
    cpu.path = str(cpu.root)
    status, _, said = cpu.run({"priority": {"cpus": "2-3"}})
    assert status == 1
    assert "intel-speed-select" in said


@pytest.fixture
def memory(tmp_path: Path) -> Host:
    """Huge pages, THP, and a /dev/shm that is an ordinary folder of this machine."""
    host = Host(tmp_path, "memory.py")
    host.put("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0")
    host.put("sys/kernel/mm/transparent_hugepage/enabled", "[madvise] always never")
    (tmp_path / "dev" / "shm").mkdir(parents=True)
    return host


MEMORY = {"shm_mib": 1, "huge_pages": {"size_kib": 2048, "count": 64}, "transparent_huge_pages": "madvise"}


def test_memory_sets_and_reads_back(memory: Host) -> None:
    status, record, said = memory.run(MEMORY)
    assert (status, said) == (0, "")
    assert memory.get("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages") == "64"
    assert record["read_back"]["transparent_huge_pages"] == {"mode": "madvise"}


def test_memory_says_what_it_could_not_get(memory: Host) -> None:
    want = {"shm_mib": 1 << 40, "huge_pages": {"size_kib": 1048576, "count": 4}, "transparent_huge_pages": "always"}
    status, record, said = memory.run(want)
    assert status == 1
    assert "huge_pages: " in said
    assert "hugepages-1048576kB" in said
    # A made-up file keeps the plain word; the kernel would show it in brackets. So this must be reported.
    assert "transparent_huge_pages: is , declared is always" in said
    assert len(record["wrong"]) == 3
