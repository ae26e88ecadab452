"""What can go wrong while a plan is applied: a clear failure, nothing half-written, and the next run finishes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kit import paths
from kit.apply import ansible
from kit.apply.result import ApplyEvent
from kit.errors import ExitCode
from kit.sim import flow
from tests.sim import applying

OnHost = Callable[..., "subprocess.CompletedProcess[str]"]
BACKDOOR = 2022


@pytest.fixture(scope="module")
def node(_sim_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One provisioned host; each test leaves it provisioned."""
    name = f"t{os.getpid()}-faults"
    flow.up(name, "b300-4")
    assert applying.apply(name, tmp_path_factory.mktemp("first")).failures == ()
    yield name
    flow.down(name)


@contextmanager
def apt_locked(node: str, on_host: OnHost) -> Iterator[None]:
    """Another process has dpkg's lock: an apply stays at its first role."""
    lock = "import fcntl,time; f=open('/var/lib/dpkg/lock-frontend','a'); fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(600)"
    on_host(node, f'sudo systemd-run --quiet --unit=holder python3 -c "{lock}"')
    try:
        yield
    finally:
        on_host(node, "sudo systemctl stop holder")


def test_apt_locked_by_another(node: str, on_host: OnHost, tmp_path: Path) -> None:
    """The role waits a minute; the other one holds the lock for longer."""
    on_host(node, "sudo apt-mark unhold containerd")
    with apt_locked(node, on_host):
        result = applying.apply(node, tmp_path / "locked")
    assert [f.code for f in result.failures] == ["apply.apt_locked"]
    assert result.exit_code == ExitCode.APPLY_FAILED
    assert "Hold packages" in result.failures[0].where
    assert "locked by another process" in result.failures[0].found
    assert list(applying.pending(node)) == ["packages.hold.containerd"]
    assert applying.apply(node, tmp_path / "after").failures == ()
    assert applying.pending(node) == {}


def test_disk_full_leaves_the_old_file_whole(node: str, on_host: OnHost, tmp_path: Path) -> None:
    mount = "mount -t tmpfs -o size=64k,mode=755 none /etc/b300kit"
    on_host(node, f"sudo sh -c 'cp -a /etc/b300kit /root/kept && {mount} && cp -a /root/kept/. /etc/b300kit/'")
    on_host(node, "sudo sh -c 'echo {} > /etc/b300kit/cpu.json; head -c 1M /dev/zero > /etc/b300kit/filler; true'")
    result = applying.apply(node, tmp_path / "full")
    assert [f.code for f in result.failures] == ["apply.disk_full"]
    assert "/etc/b300kit/cpu.json" in result.failures[0].found
    assert on_host(node, "cat /etc/b300kit/cpu.json").stdout == "{}\n"
    on_host(node, "sudo rm /etc/b300kit/filler")
    assert applying.apply(node, tmp_path / "room").failures == ()
    assert applying.pending(node) == {}
    on_host(node, "sudo sh -c 'rm -r /root/kept; cp -a /etc/b300kit /root/kept; umount /etc/b300kit'")
    on_host(node, "sudo sh -c 'cp -a /root/kept/. /etc/b300kit/; rm -r /root/kept'")


@pytest.fixture
def backdoor(node: str, on_host: OnHost) -> Iterator[int]:
    """The port of a second sshd, which stays reachable while the test has cut the first."""
    on_host(node, f"sudo systemd-run --quiet --unit=backdoor /usr/sbin/sshd -D -p {BACKDOOR}")
    yield BACKDOOR
    on_host(node, "sudo sh -c 'systemctl stop cut; nft delete table inet cut'", check=False, port=BACKDOOR)
    on_host(node, "sudo systemctl stop backdoor")


def test_ssh_cut_in_the_middle(node: str, on_host: OnHost, backdoor: int, tmp_path: Path) -> None:
    """Cut by the host itself as soon as the first file of the kit is back: roles after it find no way in."""
    on_host(node, "sudo sh -c 'rm /etc/b300kit/*.json; apt-mark unhold containerd'")
    events: list[ApplyEvent] = []
    chain = "nft add chain inet cut in '{ type filter hook input priority -200; }'"
    cut = f"nft add table inet cut; {chain}; nft add rule inet cut in tcp dport 22 drop"
    wait = "until ls /etc/b300kit/*.json >/dev/null 2>&1; do sleep 0.02; done"
    on_host(node, f'sudo systemd-run --quiet --unit=cut sh -c "{wait}; {cut}"')
    result = applying.apply(node, tmp_path / "cut", events)
    assert [f.code for f in result.failures] == ["apply.unreachable"]
    assert result.exit_code == ExitCode.UNREACHABLE
    assert events
    on_host(node, "sudo nft delete table inet cut", port=backdoor)
    assert applying.pending(node)
    assert applying.apply(node, tmp_path / "after").failures == ()
    assert applying.pending(node) == {}


def test_a_plan_of_another_boot_changes_nothing(node: str, on_host: OnHost, tmp_path: Path) -> None:
    on_host(node, "sudo apt-mark unhold containerd")
    it, _, plan = applying.look(node)
    stale = plan.model_copy(update={"boot_id": "00000000-0000-0000-0000-000000000000"})
    result = ansible.apply({it: stale}, tmp_path / "stale", lambda _: None, 1)[node]
    assert [f.code for f in result.failures] == ["apply.stale"]
    assert result.changed == 0
    assert list(applying.pending(node)) == ["packages.hold.containerd"]
    on_host(node, "sudo apt-mark hold containerd")


def test_a_unit_that_does_not_start_says_why(node: str, on_host: OnHost, tmp_path: Path) -> None:
    """A drop-in stands for any reason: what the unit says must reach the operator."""
    on_host(node, "sudo sh -c 'rm /etc/b300kit/gpu.json; mkdir -p /etc/systemd/system/b300kit-gpu.service.d'")
    on_host(node, "sudo sh -c 'echo \"echo no luck >&2; exit 9\" > /root/p'")
    drop = "[Service]\\nExecStart=\\nExecStart=/bin/sh /root/p\\n"
    on_host(node, f"sudo sh -c 'printf \"{drop}\" > /etc/systemd/system/b300kit-gpu.service.d/x.conf; systemctl daemon-reload'")
    result = applying.apply(node, tmp_path / "bad")
    assert [f.code for f in result.failures] == ["apply.unit"]
    assert "b300kit-gpu.service did not restart" in result.failures[0].found
    assert "no luck" in result.failures[0].found
    on_host(node, "sudo sh -c 'rm -r /etc/systemd/system/b300kit-gpu.service.d; systemctl daemon-reload'")
    assert applying.apply(node, tmp_path / "good").failures == ()
    assert applying.pending(node) == {}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_run_stops_ansible_and_says_so(
    node: str, on_host: OnHost, tmp_path: Path, number: signal.Signals, code: int
) -> None:
    on_host(node, "sudo sh -c 'rm /etc/b300kit/*.json; apt-mark unhold containerd'")
    command = [sys.executable, "-m", "tests.sim.applying", node, str(tmp_path)]
    with (
        apt_locked(node, on_host),
        subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        rest = process.stdout.read()
    assert process.returncode == code, rest
    assert "apply.interrupted" in rest
    assert applying.pending(node)
    assert applying.apply(node, tmp_path / "after").failures == ()
    assert applying.pending(node) == {}


def test_two_hosts_one_broken_are_told_apart(
    node: str, fresh_sim_host: Callable[[str], str], on_host: OnHost, tmp_path: Path
) -> None:
    other = fresh_sim_host("b300-4")
    on_host(node, "sudo apt-mark unhold containerd")
    work = {}
    for name in (node, other):
        it, _, plan = applying.look(name)
        keep = tuple(s for s in plan.steps if s.role in (None, "packages"))
        work[it] = plan.model_copy(update={"steps": keep, **({"boot_id": "x"} if name == other else {})})
    results = ansible.apply(work, tmp_path, lambda _: None, 2)
    assert results[node].failures == ()
    assert results[node].changed == 1
    assert [f.code for f in results[other].failures] == ["apply.stale"]
