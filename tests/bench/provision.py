"""`make bench-provision`: what provisioning costs, beside the same roles run as a plain `ansible-playbook`, in one run.

Prints medians and what they were compared with. Never a test: this machine may be busy, so look at the ratios.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kit import paths

BIN = Path(sys.executable).parent
INVOKE = BIN / "invoke"


@dataclass(frozen=True)
class Ran:
    """What a command cost."""

    seconds: float
    cpu_seconds: float
    """Of its own process and what it waited for: the control machine's share, ssh included, the hosts' not."""
    out: str
    own_mib: float
    """Peak resident memory of its own process."""
    child_mib: float
    child: str
    """Of the largest process below it, and that one's name."""


def ran(command: Sequence[str | Path], expect: tuple[int, ...] = (0,)) -> Ran:
    """Run a command; stops the benchmark when it ends otherwise than expected."""
    started, before = time.monotonic(), children_cpu_s()
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            [str(word) for word in command], cwd=paths.ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=err
        )
        peaks: dict[int, tuple[float, str]] = {}
        while True:
            for pid in [process.pid, *below(process.pid)]:
                with contextlib.suppress(OSError, ValueError, IndexError):
                    peaks[pid] = peak(pid)
            try:
                process.wait(0.03)
                break
            except subprocess.TimeoutExpired:
                continue
        seconds = time.monotonic() - started
        out.seek(0)
        err.seek(0)
        if process.returncode not in expect:
            sys.exit(f"{' '.join(map(str, command))} ended with {process.returncode}:\n{err.read().decode()[-3000:]}")
        own, _ = peaks.pop(process.pid, (0.0, ""))
        child_mib, child = max(peaks.values(), default=(0.0, ""))
        return Ran(seconds, children_cpu_s() - before, out.read().decode(), own, child_mib, child)


def children_cpu_s() -> float:
    """CPU time of all that has ended below this process so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def below(pid: int) -> list[int]:
    """All living descendants of a process."""
    found = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, tasks.read_text().split()):
                found += [child, *below(child)]
    return found


def peak(pid: int) -> tuple[float, str]:
    """Peak resident memory of one living process in MiB, and its name."""
    text = Path(f"/proc/{pid}/status").read_text()
    kib = int(text.split("VmHWM:")[1].split()[0])
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    return kib / 1024, Path(next((w for w in words[1:2] if w.startswith("/")), words[0])).name


def provision(hosts: Sequence[str]) -> Ran:
    """One `invoke provision`."""
    return ran([INVOKE, "provision", "--host", ",".join(hosts), "--format", "json"])


def interleaved(repeats: int, **what: Callable[[], Ran]) -> dict[str, list[Ran]]:
    """Each in turn, ``repeats`` times, so that a busy minute falls on all of them."""
    times: dict[str, list[Ran]] = {name: [] for name in what}
    for _ in range(repeats):
        for name, run in what.items():
            times[name].append(run())
    return times


def stage_times(record: Path) -> dict[str, float]:
    """Seconds a stage from a host's record."""
    lines = [json.loads(line) for line in (record / "stages.jsonl").read_text().splitlines()]
    return {line["stage"]: line["seconds"] for line in lines if line["event"] == "end"}


def role_times(record: Path) -> dict[str, float]:
    """Seconds an Ansible role from a host's record."""
    roles: dict[str, float] = {}
    for line in (record / "events.jsonl").read_text().splitlines():
        event = json.loads(line)
        roles[event["role"] or "playbook"] = roles.get(event["role"] or "playbook", 0.0) + event["seconds"]
    return roles


def main() -> None:
    """Boot, measure, print, take everything down."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--hosts", type=int, default=8, help="how many for the many-host figure (8)")
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument("--output", type=Path, default=None, help="also write the figures as JSON here")
    asked = options.parse_args()
    names = [f"bench-{i}" for i in range(asked.hosts)]
    one, rest = names[0], names[1:]
    console = Console()
    try:
        for name in names:
            ran([INVOKE, "sim.up", "--name", name])
            console.print(f"booted {name}", style="dim")
        first = provision([one])
        record = Path(json.loads(first.out)["result"]["hosts"][one]["record"])
        runs = {"first": [first]}
        if rest:
            runs["rest"] = [provision(rest)]
        plain: list[str | Path] = [
            BIN / "ansible-playbook", "-i", paths.cache_dir() / "fleet",
            "playbooks/apply.yml", "-l", one, "-e", f"@{record / 'apply.json'}",
        ]  # fmt: skip
        runs |= interleaved(
            asked.repeats,
            ours=lambda: provision([one]),
            plain=lambda: ran(plain),
            many=lambda: provision(names),
            listing=lambda: ran([INVOKE, "--list"]),
        )
    finally:
        for name in names:
            subprocess.run([str(INVOKE), "sim.down", "--name", name], cwd=paths.ROOT, capture_output=True, check=False)
    show(console, asked, runs, record)
    if asked.output:
        figures = {name: [{**asdict(run), "out": None} for run in many] for name, many in runs.items()}
        asked.output.write_text(json.dumps({"runs": figures, "loadavg": os.getloadavg()}, indent=1) + "\n")


def show(console: Console, asked: argparse.Namespace, runs: dict[str, list[Ran]], record: Path) -> None:
    """The table, and where the first run's time went."""
    median = {name: statistics.median(run.seconds for run in many) for name, many in runs.items()}
    table = Table("figure (measured, median)", "value", "compared with", "aim", "reached")

    def row(what: str, value: str, beside: str, aim: str, reached: bool | None) -> None:
        table.add_row(what, value, beside, aim, "" if reached is None else "yes" if reached else "NO")

    ratio = median["ours"] / median["plain"]
    plain = f"plain ansible-playbook {median['plain']:.1f} s"
    row("no-op provision, 1 host", f"{median['ours']:.2f} s", plain, "< 5 s", median["ours"] < 5)
    row("the same as a ratio", f"{ratio:.3f}", "plain ansible-playbook", "<= 0.2", ratio <= 0.2)
    many = median["many"] / median["ours"]
    beside = f"1 host {median['ours']:.2f} s: {many:.2f} x"
    row(f"no-op provision, {asked.hosts} hosts", f"{median['many']:.2f} s", beside, "<= 2 x", many <= 2)
    cpu = {name: statistics.median(run.cpu_seconds for run in runs[name]) for name in ("ours", "many")}
    beside = f"1 host {cpu['ours']:.2f} s; the rest is the simulated hosts', which share this machine's CPUs"
    row(f"CPU of the control machine's side, {asked.hosts} hosts", f"{cpu['many']:.2f} s", beside, "stated", None)
    ours = [run for name in ("first", "rest", "ours", "many") for run in runs.get(name, ())]
    own = max(run.own_mib for run in ours)
    row("memory of the control process", f"{own:.0f} MiB", f"peak of {len(ours)} provisions", "< 300 MiB", own < 300)
    child = max(ours, key=lambda run: run.child_mib)
    row("its largest child", f"{child.child_mib:.0f} MiB", child.child, "stated", None)
    row("invoke --list", f"{median['listing']:.2f} s", "", "< 1 s", median["listing"] < 1)
    row("first provision, 1 host", f"{median['first']:.1f} s", "", "stated", None)
    if "rest" in median:
        row(f"first provision, {asked.hosts - 1} hosts at once", f"{median['rest']:.1f} s", "", "stated", None)
    console.print(table)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    console.print(f"{os.cpu_count()} CPUs, load {load}; {asked.repeats} rounds, interleaved; ranges:")
    for name, several in runs.items():
        times = [run.seconds for run in several]
        console.print(f"  {name:8} {min(times):.2f} .. {max(times):.2f} s")
    console.print("first provision by stage: " + ", ".join(f"{k} {v:.1f} s" for k, v in stage_times(record).items()))
    by_role = sorted(role_times(record).items(), key=lambda item: -item[1])
    console.print("and by role: " + ", ".join(f"{role} {seconds:.1f} s" for role, seconds in by_role))


if __name__ == "__main__":
    main()
