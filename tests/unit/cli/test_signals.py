"""Which processes an interrupted run stops."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from kit.cli import signals
from kit.detached import DETACHED

CHILD = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"


def test_children_and_theirs_are_found_and_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        grandchild = int(child.stdout.readline())
        found = signals.descendants(os.getpid())
        assert {child.pid, grandchild} <= set(found)
        ours = {pid: found[pid] for pid in (child.pid, grandchild)}
        assert signals.alive(ours)
        signals.kill(ours, signal.SIGKILL)
        child.wait(5)
    assert not signals.alive({child.pid: ours[child.pid]})


def test_what_is_meant_to_outlive_us_is_left_alone() -> None:
    environment = {**os.environ, DETACHED: "1"}
    with subprocess.Popen(["sleep", "60"], env=environment) as child:
        try:
            assert child.pid not in signals.descendants(os.getpid())
        finally:
            child.kill()


def test_a_pid_given_to_another_is_not_touched() -> None:
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            signals.kill({child.pid: 1}, signal.SIGKILL)
            assert child.poll() is None
            assert not signals.alive({child.pid: 1})
        finally:
            child.kill()
