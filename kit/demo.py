"""``make demo``: the whole flow on simulated hosts, through the same commands an operator types.

Each act runs a command, shows it, and checks its exit code; the first that ends otherwise ends the demo with what it printed.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

from kit import paths
from kit.apply.ssh import Remote
from kit.errors import ExitCode, KitError, failure
from kit.outcome import Outcome
from kit.record import read
from kit.record.documents import run_document
from kit.record.model import REPORT, RunSummary
from kit.sim import flow as sim
from kit.spec.pick import pick

HOSTS = ("demo-a", "demo-b")
TOGETHER = ",".join(HOSTS)
PROGRAM = Path(sys.executable).with_name("invoke")

SABOTAGE = """
set -eu
echo powersave > /sys/devices/system/cpu/cpu5/cpufreq/scaling_governor
apt-mark unhold docker.io >/dev/null
nft delete table inet b300kit
sed -i 's/"live-restore": true/"live-restore": false/' /etc/docker/daemon.json
"""
"""What a colleague in a hurry leaves behind: a slow core, an unheld package, an open engine port, no live-restore."""


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - the demo is a narration on a terminal


def _act(title: str, words: Sequence[str], expect: int) -> tuple[float, int]:
    """Run one command with its output shown as it comes; the seconds it took, and which process it was.

    Raises KitError(GATE_FAILED) when it ends otherwise than declared.
    """
    _say(f"\n=== {title}\n$ invoke {shlex.join(words)}")
    started = time.monotonic()
    with subprocess.Popen([str(PROGRAM), *words], cwd=paths.ROOT, stdin=subprocess.DEVNULL, stdout=sys.stderr) as process:
        status = process.wait()
    seconds = time.monotonic() - started
    _say(f"    exit {status}, {seconds:.1f} s")
    if status != expect:
        expected, found = f"exit {expect}", f"exit {status}"
        raise KitError(
            failure("demo.exit", f"invoke {shlex.join(words)}", expected, found, "read its output above"), ExitCode.GATE_FAILED
        )
    return seconds, process.pid


def own_runs(runs_dir: Path, earlier: Collection[str], pids: Collection[int]) -> list[RunSummary]:
    """Runs that are not among the `earlier` ids and were written by these processes, oldest first: others may be at work here."""

    def writer(path: Path) -> int | None:
        document = run_document(path, [])
        return document.pid if document is not None else None

    return [run for run in reversed(read.list_runs(runs_dir)) if run.id not in earlier and writer(run.path) in pids]


def _sabotage(name: str) -> None:
    """Break the host by hand, as a person with a root shell would."""
    (target,) = pick(name)
    remote = Remote(target.spec.connection, name)
    _say(f"\n=== Someone breaks {name} by hand\n# ssh {name}{SABOTAGE.rstrip()}")
    done = remote.run(remote.privileged(["sh", "-s"]), SABOTAGE.encode(), 60.0)
    if done.status:
        found = f"exit {done.status}: {done.stderr.strip()}"
        step = "a simulated host lacks what is broken here: report it with this output"
        raise KitError(failure("demo.sabotage", name, "exit 0", found, step), ExitCode.INTERNAL)


def run(keep: bool = False) -> Outcome:
    """The demo. ``keep`` leaves the simulated hosts running for a look around; otherwise nothing is left."""
    started = time.monotonic()
    times: dict[str, float] = {}
    pids: set[int] = set()

    def act(title: str, *words: str, expect: int = ExitCode.OK) -> None:
        times[title], pid = _act(title, words, expect)
        pids.add(pid)

    earlier = {run.id for run in read.list_runs(paths.runs_dir())}
    cold = not (paths.cache_dir() / "sim").is_dir()
    if cold:
        _say("The first time: a root file system is built from packages it fetches, one to five minutes. Later it is there.")
    try:
        for name in HOSTS:
            act(f"Boot the simulated B300 host {name}", "sim.up", "--name", name, "--profile", "b300-4")
        act(f"The dry run of {HOSTS[0]}, as a diff", "plan", "--host", HOSTS[0], expect=ExitCode.CHANGE_PENDING)
        act("Provision both", "provision", "--host", TOGETHER)
        act("Provision again: nothing to do", "provision", "--host", TOGETHER)
        _sabotage(HOSTS[0])
        act("See the drift", "drift", "--host", TOGETHER, expect=ExitCode.MIXED)
        act("Repair it", "provision", "--host", TOGETHER)
        act("Verify, from inside and from outside", "verify", "--host", HOSTS[0])
    finally:
        if not keep:
            _quietly(lambda: [sim.down(name) for name in HOSTS])
    seconds = time.monotonic() - started
    runs = own_runs(paths.runs_dir(), earlier, pids)
    records = "\n".join(f"  {run.task:10} {run.path / REPORT}" for run in runs)
    rows = "\n".join(f"  {value:6.1f} s  {title}" for title, value in times.items())
    start = "cold: root file system built" if cold else "warm: from the cache"
    hint = (
        f"hosts left running: invoke sim.status; {'; '.join(f'invoke sim.down --name {name}' for name in HOSTS)}"
        if keep
        else "simulated hosts removed"
    )
    body = f"{rows}\n  {seconds:6.1f} s  in all ({start})\n{hint}\nreports, each in the folder of its record:\n{records}\n"
    result = {"seconds": seconds, "cold": cold, "acts": times, "records": [run.path for run in runs]}
    return Outcome("demo", result=result, text=body)


def _quietly(tidy: Callable[[], object]) -> None:
    """Tidying must not hide why the demo ended."""
    try:
        tidy()
    except KitError as error:
        _say(str(error))
