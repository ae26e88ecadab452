"""`make bench-provision`: what provisioning costs, beside the same roles run as a plain `ansible-playbook`, in one run.

Prints medians and what they were compared with. Never a test: this machine may be busy, so look at the ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kit import paths

BIN = Path(sys.executable).parent
INVOKE = BIN / "invoke"


def timed(command: Sequence[str | Path], expect: tuple[int, ...] = (0,)) -> tuple[float, str]:
    """Seconds of a command and its standard output; stops the benchmark when it ends otherwise than expected."""
    started = time.monotonic()
    done = subprocess.run(
        [str(word) for word in command], cwd=paths.ROOT, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    seconds = time.monotonic() - started
    if done.returncode not in expect:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr.decode()[-3000:]}")
    return seconds, done.stdout.decode()


def provision(hosts: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """One `invoke provision` and its JSON document."""
    seconds, out = timed([INVOKE, "provision", "--host", ",".join(hosts), "--format", "json"])
    return seconds, json.loads(out)


def interleaved(repeats: int, **what: Callable[[], float]) -> dict[str, list[float]]:
    """Each in turn, ``repeats`` times, so that a busy minute falls on all of them."""
    times: dict[str, list[float]] = {name: [] for name in what}
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
            timed([INVOKE, "sim.up", "--name", name])
            console.print(f"booted {name}", style="dim")
        first, document = provision([one])
        record = Path(document["result"]["hosts"][one]["record"])
        if rest:
            provision(rest)
        plain = [
            BIN / "ansible-playbook", "-i", paths.cache_dir() / "fleet",
            "playbooks/apply.yml", "-l", one, "-e", f"@{record / 'apply.json'}",
        ]  # fmt: skip
        times = interleaved(
            asked.repeats,
            ours=lambda: provision([one])[0],
            plain=lambda: timed(plain)[0],
            many=lambda: provision(names)[0],
            listing=lambda: timed([INVOKE, "--list"])[0],
        )
    finally:
        for name in names:
            subprocess.run([str(INVOKE), "sim.down", "--name", name], cwd=paths.ROOT, capture_output=True, check=False)
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    show(console, asked, times, first, record, memory)
    if asked.output:
        figures = {"times_s": times, "first_s": first, "largest_process_mib": memory, "loadavg": os.getloadavg()}
        asked.output.write_text(json.dumps(figures, indent=1) + "\n")


def show(
    console: Console, asked: argparse.Namespace, times: dict[str, list[float]], first: float, record: Path, memory: float
) -> None:
    """The table, and where the first run's time went."""
    median = {name: statistics.median(values) for name, values in times.items()}
    table = Table("figure (measured, median)", "value", "compared with", "aim", "reached")

    def row(what: str, value: str, beside: str, aim: str, reached: bool | None) -> None:
        table.add_row(what, value, beside, aim, "" if reached is None else "yes" if reached else "NO")

    ratio = median["ours"] / median["plain"]
    row(
        "no-op provision, 1 host",
        f"{median['ours']:.2f} s",
        f"plain ansible-playbook {median['plain']:.1f} s",
        "< 5 s",
        median["ours"] < 5,
    )
    row("the same as a ratio", f"{ratio:.3f}", "plain ansible-playbook", "<= 0.2", ratio <= 0.2)
    many = median["many"] / median["ours"]
    row(
        f"no-op provision, {asked.hosts} hosts",
        f"{median['many']:.2f} s",
        f"1 host {median['ours']:.2f} s: {many:.2f} x",
        "<= 2 x",
        many <= 2,
    )
    row("largest process", f"{memory:.0f} MiB", "", "< 300 MiB", memory < 300)
    row("invoke --list", f"{median['listing']:.2f} s", "", "< 1 s", median["listing"] < 1)
    row("first provision, 1 host", f"{first:.1f} s", "", "stated", None)
    console.print(table)
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    console.print(f"{os.cpu_count()} CPUs, load {load}; {asked.repeats} rounds, interleaved; ranges:")
    for name, values in times.items():
        console.print(f"  {name:8} {min(values):.2f} .. {max(values):.2f} s")
    console.print("first provision by stage: " + ", ".join(f"{k} {v:.1f} s" for k, v in stage_times(record).items()))
    console.print(
        "and by role: " + ", ".join(f"{k} {v:.1f} s" for k, v in sorted(role_times(record).items(), key=lambda kv: -kv[1]))
    )


if __name__ == "__main__":
    main()
