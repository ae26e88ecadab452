"""Failures as lines of a terminal."""

from __future__ import annotations

from kit.cli.output import failure_lines
from kit.errors import ExitCode, failure
from kit.outcome import HostOutcome, Outcome


def test_words_of_a_host_cannot_drive_the_terminal() -> None:
    bad = failure("host.sudo", "node: x", "y", "sudo: \x1b[2J\x1b]0;owned\x07\r\nerror: all is well", "z")
    (line,) = failure_lines(Outcome("plan", {"node": HostOutcome(ExitCode.UNREACHABLE, failures=(bad,))}))
    assert line.isprintable()
    assert "all is well" in line


def test_each_failure_once_and_refusals_of_a_shown_plan_only_counted() -> None:
    lost = failure("ssh.unreachable", "a (ops@a port 22)", "x", "y")
    refused = [failure(f"plan.gpu.{i}", f"b: gpu.{i}", "x", "y") for i in range(2)]
    hosts = {"a": HostOutcome(7, failures=(lost, lost)), "b": HostOutcome(4, failures=tuple(refused))}
    assert failure_lines(Outcome("plan", hosts, text="the plan")) == [
        lost.text(),
        "b: refused for 2 reasons, shown with the plan; nothing was applied",
    ]
    assert len(failure_lines(Outcome("plan", hosts))) == 3


def test_a_next_step_that_failures_share_is_told_once() -> None:
    same = [failure(f"outside.test_{i}", f"node: {i}", "x", "y", "read the log") for i in range(3)]
    other = failure("ssh.auth", "node", "x", "y", "allow the key")
    lines = failure_lines(Outcome("verify", {"node": HostOutcome(5, failures=(*same, other))}))
    assert [line.partition(". Next: ")[2] for line in lines] == ["", "", "read the log", "allow the key"]
