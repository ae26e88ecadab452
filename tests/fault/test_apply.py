"""What goes wrong while hosts are changed, through the command line: told, nothing half-written, and the next run finishes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.sim.places import Places
from tests.cli import NOBODY, READ_ONLY, OnHost, as_root, as_user, edit, finish, fleet_of, invoke, look, start, until
from tests.sim.test_apply_converge import STATE, alive
from tests.sim.test_apply_faults import BACKDOOR, apt_locked

from .conftest import Call

pytestmark = pytest.mark.sim


def said(process: subprocess.Popen[str], *words: str) -> None:
    """Read the progress up to a line with all these words."""
    assert process.stderr is not None
    for line in process.stderr:
        if all(word in line for word in words):
            return
    pytest.fail(f"{words} never came")


def end(process: subprocess.Popen[str], runs: Path) -> None:
    """kill -9, and wait until nothing that the run started is left: its Ansible, the ssh that holds the host's lock."""
    (run,) = runs.glob("2*")
    process.send_signal(signal.SIGKILL)
    process.communicate()
    until(lambda: not alive(run.name))


Moment = Callable[["subprocess.Popen[str]", Path], None]


def written(file: str) -> Moment:
    """When the record has this file of the host."""
    return lambda _, runs: until(lambda: list(runs.glob(f"2*/hosts/*/{file}")))


MOMENTS: dict[str, Moment] = {
    "while it is read": written("stages.jsonl"),
    "planned": written("plan.json"),
    "a role done": lambda process, _: said(process, "changed", "node: Make the user"),
    "a file written, its unit not started": lambda process, _: said(process, "changed", "managed_files: Write"),
    "all applied, not yet looked at": written("recap.json"),
}


def test_a_run_killed_at_any_moment_is_finished_by_the_next(
    names: tuple[str, str], coming: object, nodes: Path, on_host: OnHost, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """At five moments, one after the other; then the same state as on a host whose first run nobody killed."""
    name = names[0]
    new = look(on_host, name)
    for moment, come in MOMENTS.items():
        runs = tmp_path / moment
        process = start("provision", "--host", name, B300KIT_FLEET=nodes, B300KIT_RUNS=runs)
        come(process, runs)
        end(process, runs)
        told = invoke("record.list", B300KIT_RUNS=runs).document["result"]["runs"]
        assert [(run["task"], run["state"]) for run in told] == [("provision", "interrupted")], moment
        assert invoke("record.verify", B300KIT_RUNS=runs).code == 0, moment
        if moment == "while it is read":
            assert look(on_host, name) == new, "changed before the record said that it would be"
    last = invoke("provision", "--host", name, B300KIT_FLEET=nodes, B300KIT_RUNS=tmp_path / "last")
    assert last.code == 0, last.out + last.err
    whole = request.getfixturevalue("whole")
    assert on_host(name, STATE).stdout == on_host(whole, STATE).stdout
    plans = invoke("plan", "--host", "both", B300KIT_FLEET=nodes, B300KIT_RUNS=tmp_path / "last")
    assert plans.ends() == {name: 0, whole: 0}


@pytest.fixture
def full_disk(node: str, on_host: OnHost) -> Iterator[None]:
    """The folder of the kit's files on a file system of its own, without room; one file there is not as declared."""
    mount = "mount -t tmpfs -o size=64k,mode=755 none /etc/b300kit"
    on_host(node, f"sudo sh -c 'cp -a /etc/b300kit /root/kept && {mount} && cp -a /root/kept/. /etc/b300kit/'")
    on_host(node, "sudo sh -c 'echo {} > /etc/b300kit/cpu.json; head -c 1M /dev/zero > /etc/b300kit/filler; true'")
    yield
    on_host(node, "sudo sh -c 'rm -r /root/kept; cp -a /etc/b300kit /root/kept; umount /etc/b300kit'")
    on_host(node, "sudo sh -c 'cp -a /root/kept/. /etc/b300kit/; rm -r /root/kept'")


@pytest.fixture
def cut(whole: str, on_host: OnHost) -> Iterator[None]:
    """The host itself resets its ssh as soon as the kit's first file is back; a second sshd stays for this test.

    The unit that reads the file waits for the cut, so that it cannot come too late.
    """
    on_host(whole, f"sudo systemd-run --quiet --unit=backdoor /usr/sbin/sshd -D -p {BACKDOOR}")
    folder, done = "/run/systemd/system/b300kit-cpu.service.d", "/run/cut-done"
    drop = f'[Service]\\nExecStartPre=/bin/sh -c \\"until test -e {done}; do sleep 0.02; done\\"\\n'
    on_host(whole, f"sudo sh -c 'mkdir -p {folder}; printf \"{drop}\" > {folder}/cut.conf; systemctl daemon-reload'")
    on_host(whole, "sudo sh -c 'rm /etc/b300kit/cpu.json; apt-mark unhold containerd'")
    chain = "nft add chain inet cut in '{ type filter hook input priority -200; }'"
    rule = "nft add rule inet cut in tcp dport 22 reject with tcp reset"
    wait = "until ls /etc/b300kit/cpu.json >/dev/null 2>&1; do sleep 0.02; done"
    on_host(whole, f'sudo systemd-run --quiet --unit=cut sh -c "{wait}; nft add table inet cut; {chain}; {rule}; touch {done}"')
    yield
    on_host(whole, "sudo sh -c 'systemctl stop cut; nft delete table inet cut'", check=False, port=BACKDOOR)
    on_host(whole, f"sudo sh -c 'rm -r {folder} {done}; systemctl daemon-reload; systemctl stop backdoor'")


def test_a_full_disk_on_one_host_and_ssh_cut_on_another(
    node: str, whole: str, full_disk: None, cut: None, call: Call, on_host: OnHost
) -> None:
    ran = call("provision", "--host", "both")
    assert (ran.code, ran.ends()) == (8, {node: 11, whole: 7})
    told = {failure["where"].partition(":")[0]: failure for failure in ran.document["failures"]}
    assert {name: failure["code"] for name, failure in told.items()} == {node: "apply.disk_full", whole: "apply.unreachable"}
    assert "/etc/b300kit/cpu.json" in told[node]["found"]
    assert all("run again" in failure["next"] for failure in told.values())
    assert call("record.verify").code == 0
    assert on_host(node, "cat /etc/b300kit/cpu.json").stdout == "{}\n", "neither the old file nor the new one"
    on_host(node, "sudo rm /etc/b300kit/filler")
    on_host(whole, "sudo nft delete table inet cut", port=BACKDOOR)
    left = call("plan", "--host", "both")
    assert set(left.steps(node)) == {"cpu.config_file", "cpu.unit"}
    assert "packages.hold.containerd" in left.steps(whole)
    # The session that held the lock of the host that was cut off still does, until its silence is noticed there.
    until(lambda: call("provision", "--host", whole).code != 12)
    assert call("provision", "--host", "both").ends() == {node: 0, whole: 0}


def test_a_signal_while_it_reads_changes_nothing(node: str, nodes: Path, on_host: OnHost, tmp_path: Path) -> None:
    on_host(node, "sudo apt-mark unhold containerd")
    before = look(on_host, node)
    process = start("provision", "--host", node, B300KIT_FLEET=nodes, B300KIT_RUNS=tmp_path)
    written("stages.jsonl")(process, tmp_path)
    process.send_signal(signal.SIGTERM)
    ran = finish(process)
    assert ran.code == 143
    assert "cli.interrupted" in ran.codes
    assert look(on_host, node) == before
    on_host(node, "sudo apt-mark hold containerd")


def test_a_signal_while_ansible_works_is_told_and_the_next_run_goes_on(
    node: str, nodes: Path, call: Call, on_host: OnHost, tmp_path: Path
) -> None:
    on_host(node, "sudo sh -c 'rm /etc/b300kit/cpu.json /etc/b300kit/memory.json; apt-mark unhold containerd'")
    with apt_locked(node, on_host):  # so that it is not done before it is interrupted
        process = start("provision", "--host", node, B300KIT_FLEET=nodes, B300KIT_RUNS=tmp_path / "runs")
        said(process, "changed", "managed_files: Write")
        process.send_signal(signal.SIGINT)
        ran = finish(process)
        (run,) = (tmp_path / "runs").glob("2*")
        # Looked at before the lock is let go of: what waits for it on the host may still get it then.
        assert call("plan", "--host", node).code == 3
    assert (ran.code, ran.ends()) == (130, {node: 130})
    assert ran.codes == ["apply.interrupted"]
    until(lambda: not alive(run.name))
    assert json.loads((run / "run.json").read_text())["exit_code"] == 130
    assert call("record.verify").code == 0
    assert call("provision", "--host", node).ends() == {node: 0}


def test_a_lock_that_was_lost_meanwhile_ends_the_run_before_it_changes_anything(
    node: str, nodes: Path, on_host: OnHost, tmp_path: Path
) -> None:
    """As after a suspend of the control machine: the host let go of it, and another operator may be at work."""
    on_host(node, "sudo apt-mark unhold containerd")
    before = look(on_host, node)
    process = start("provision", "--host", node, B300KIT_FLEET=nodes, B300KIT_RUNS=tmp_path)
    written("stages.jsonl")(process, tmp_path)
    process.send_signal(signal.SIGSTOP)
    (run,) = tmp_path.glob("2*")
    assert alive(run.name)
    on_host(node, "pkill -f '[b]300kit-lock'")
    until(lambda: not alive(run.name))
    process.send_signal(signal.SIGCONT)
    ran = finish(process)
    assert (ran.code, ran.codes) == (12, ["host.lock_lost"])
    assert look(on_host, node) == before
    on_host(node, "sudo apt-mark hold containerd")


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB on this machine."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(as_root("mount", "-t", "tmpfs", "-o", "size=4m,mode=777", "none", str(folder)), check=True)
    yield folder
    subprocess.run(as_root("umount", str(folder)), check=True)


def fill(folder: Path) -> None:
    """Until nothing more goes in."""
    with pytest.raises(OSError, match="No space left"), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)


def test_a_full_record_disk_keeps_hands_off_the_host(node: str, small: Path, call: Call, on_host: OnHost) -> None:
    before = look(on_host, node)
    fill(small)
    ran = call("provision", "--host", node, B300KIT_RUNS=small)
    assert (ran.code, ran.codes) == (1, ["record.write"])
    assert "B300KIT_RUNS" in ran.document["failures"][0]["next"]
    assert look(on_host, node) == before


def test_a_record_disk_that_fills_up_meanwhile_is_told_with_what_happened(
    node: str, nodes: Path, small: Path, call: Call, on_host: OnHost
) -> None:
    on_host(node, "sudo sh -c 'rm /etc/b300kit/cpu.json; apt-mark unhold containerd'")
    with apt_locked(node, on_host):  # so that something is left to do, and to record
        process = start("provision", "--host", node, B300KIT_FLEET=nodes, B300KIT_RUNS=small)
        said(process, "changed", "managed_files: Write")
        fill(small)
    ran = finish(process)
    assert ran.code == 1
    assert set(ran.codes) == {"record.write"}
    assert "Traceback" not in ran.err
    (small / "filler").unlink()
    (run,) = small.glob("2*")
    until(lambda: not alive(run.name))
    assert json.loads((run / "run.json").read_text())["task"] == "provision"
    assert not list(run.rglob(".partial-*"))
    assert call("record.verify", B300KIT_RUNS=small).code == 0
    assert call("provision", "--host", node).ends() == {node: 0}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_plain_user_without_home_locale_or_terminal_and_a_checkout_that_cannot_be_written(
    node: str, on_host: OnHost, tmp_path: Path
) -> None:
    """Folders with spaces, too: a run that changes something needs nothing else than its record's folder."""
    on_host(node, "sudo apt-mark unhold containerd")
    with tempfile.TemporaryDirectory() as plain:  # pytest's own folders are for one user
        folder = Path(plain)
        folder.chmod(0o755)
        key, runs, runtime = folder / "key", folder / "my runs", folder / "my 100%time"
        key.write_bytes(Places.here().client_key.read_bytes())
        key.chmod(0o600)
        for own in (runs, runtime):
            own.mkdir(mode=0o700)
        for own in (key, runs, runtime):
            os.chown(own, NOBODY, NOBODY)
        fleet = fleet_of(folder / "my fleet", [node])
        edit(fleet, node, lambda spec: spec["connection"].update(identity_file=str(key)))
        variables = {"B300KIT_FLEET": fleet, "B300KIT_RUNS": runs, "XDG_RUNTIME_DIR": runtime, "LC_ALL": "C"}
        ran = as_user(NOBODY, "provision", "--host", node, before=READ_ONLY, **variables)
        assert ran.code == 0, ran.out + ran.err
        assert ran.document["result"]["hosts"][node]["apply"]["changed"] == 1
        assert Path(ran.document["result"]["report"]).parent.parent == runs
        assert as_user(NOBODY, "plan", "--host", node, before=READ_ONLY, **variables).code == 0
        assert not list(runtime.rglob("log-*")), "ssh's own logs are left"
