"""kit.apply.ssh against a real OpenSSH server."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from kit.apply import ssh_client
from kit.apply.ssh import Remote, host_lock, ssh_options
from kit.apply.ssh_errors import host_failure
from kit.errors import ExitCode, KitError

from .loopback_sshd import Server, end_shared, free_port, other_key


def fails(remote: Remote, command: list[str], timeout_s: float = 10, stdin: bytes = b"") -> KitError:
    with pytest.raises(KitError) as caught:
        remote.run(command, stdin, timeout_s)
    return caught.value


def test_output_status_and_stdin_come_back_as_they_are(sshd: Server) -> None:
    remote = sshd.remote()
    done = remote.run(["sh", "-c", "cat; echo oops >&2; exit 3"], b"\x00\xff data", 10)
    assert (done.status, done.stdout, done.stderr) == (3, b"\x00\xff data", "oops\n")


def test_arguments_reach_the_command_unchanged(sshd: Server) -> None:
    hostile = "a b; $(echo no) `echo no` '\" \\ \n *"
    assert sshd.remote().run(["sh", "-c", 'printf %s "$1"', "x", hostile]).stdout.decode() == hostile


def test_the_second_command_shares_the_connection(sshd: Server, runtime: Path) -> None:
    remote = sshd.remote()
    remote.run(["echo"])
    sockets = [p for p in (runtime / "b300kit").iterdir() if p.is_socket()]
    assert len(sockets) == 1
    assert stat.S_IMODE((runtime / "b300kit").stat().st_mode) == 0o700
    sshd.process.terminate()
    sshd.process.wait()
    assert remote.run(["echo", "still"]).stdout == b"still\n"
    end_shared(remote)
    assert fails(remote, ["echo"]).failures[0].code == "ssh.unreachable"


def test_another_host_key_is_refused_even_while_a_connection_is_open(sshd: Server, tmp_path: Path) -> None:
    sshd.remote().run(["echo"])
    error = fails(sshd.remote(host_key=other_key(tmp_path)), ["echo"])
    assert error.exit_code is ExitCode.UNREACHABLE
    assert error.failures[0].code == "ssh.host_key"
    assert "SHA256:" in error.failures[0].found or "verification failed" in error.failures[0].found


def test_a_key_of_another_type_is_refused(sshd: Server) -> None:
    ecdsa = "ecdsa-sha2-nistp256 " + "A" * 140
    assert fails(sshd.remote(host_key=ecdsa), ["echo"]).failures[0].code == "ssh.host_key"


def test_an_unknown_user_key_is_named(sshd: Server, tmp_path: Path) -> None:
    other_key(tmp_path)
    assert fails(sshd.remote(identity_file=str(tmp_path / "other")), ["echo"]).failures[0].code == "ssh.auth"


def test_a_missing_key_file_is_an_authentication_failure(sshd: Server, tmp_path: Path) -> None:
    [absent] = fails(sshd.remote(identity_file=str(tmp_path / "absent")), ["echo"]).failures
    assert (absent.code, absent.found) == ("ssh.auth", "No such file or directory")
    assert str(tmp_path / "absent") in absent.expected
    assert "install the public key" not in absent.next


@pytest.mark.parametrize(
    ("address", "port", "said"),
    [("127.0.0.1", None, "refused"), ("no-such-host.invalid", 22, "resolve")],
)
def test_unreachable_says_how(runtime: Path, sshd: Server, address: str, port: int | None, said: str) -> None:
    error = fails(sshd.remote(address=address, port=port or free_port()), ["echo"])
    assert error.failures[0].code == "ssh.unreachable"
    assert said in error.failures[0].found


def test_a_server_that_never_speaks_is_bounded(sshd: Server) -> None:
    with socket.socket() as mute:
        mute.bind(("127.0.0.1", 0))
        mute.listen(1)
        began = time.monotonic()
        remote = Remote(sshd.connection(port=mute.getsockname()[1]), "mute", connect_timeout_s=1)
        assert fails(remote, ["echo"]).failures[0].code == "ssh.unreachable"
        assert time.monotonic() - began < 5


def test_a_command_that_hangs_is_killed_with_its_group(sshd: Server) -> None:
    began = time.monotonic()
    error = fails(sshd.remote(), ["sleep", "60"], 1.0)
    assert error.exit_code is ExitCode.TIMEOUT
    assert error.failures[0].code == "host.timeout"
    assert time.monotonic() - began < 5


def test_too_much_output_is_cut(sshd: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_client, "MAX_STDOUT", 100_000)
    assert fails(sshd.remote(), ["cat", "/dev/zero"]).failures[0].code == "host.output"


def test_a_cut_connection_is_not_the_commands_failure(sshd: Server) -> None:
    remote = sshd.remote()
    session = remote.run(["sh", "-c", "echo $PPID"]).stdout.decode().strip()
    killer = threading.Timer(0.3, lambda: os.kill(int(session), signal.SIGKILL))
    killer.start()
    assert fails(remote, ["sleep", "20"]).failures[0].code == "ssh.unreachable"
    killer.join()


def test_python_and_sudo_that_are_not_there_are_named(sshd: Server) -> None:
    (sshd.bin / "python3").unlink()
    remote = sshd.remote()
    assert fails(remote, ["python3", "-"]).failures[0].code == "host.python"
    assert fails(remote, ["sudo", "-n", "python3", "-"]).failures[0].code == "host.sudo"


@pytest.mark.parametrize(
    ("stderr", "code"),
    [
        ("sudo: a password is required\n", "host.sudo"),
        ("sudo: a terminal is required to read the password; either use the -S option\n", "host.sudo"),
        ("ops is not in the sudoers file.\n", "host.sudo"),
        ("Sorry, user ops is not allowed to execute '/usr/bin/python3 -' as root on node.\n", "host.sudo"),
        ("sudo: /usr/bin/sudo must be owned by uid 0 and have the setuid bit set\n", "host.sudo"),
        ("sudo: python3: command not found\n", "host.python"),
        ("Traceback (most recent call last):\n", None),
    ],
)
def test_words_of_sudo(stderr: str, code: str | None) -> None:
    found = host_failure(["sudo", "-n", "python3", "-"], stderr)
    assert (found[0] if found else None) == code


def test_options_never_trust_or_prompt(runtime: Path, sshd: Server) -> None:
    options = ssh_options(sshd.connection(), "node")
    assert {"BatchMode=yes", "StrictHostKeyChecking=yes", "UserKnownHostsFile=none", "PasswordAuthentication=no"} <= set(options)
    assert len(next(o for o in options if o.startswith("ControlPath="))) < 100


def test_a_runtime_directory_others_can_enter_is_refused(runtime: Path, sshd: Server) -> None:
    (runtime / "b300kit").mkdir(mode=0o755, exist_ok=True)
    (runtime / "b300kit").chmod(0o755)
    with pytest.raises(KitError) as caught:
        ssh_options(sshd.connection(), "node")
    assert caught.value.failures[0].code == "ssh.runtime_dir"
    (runtime / "b300kit").chmod(0o700)


def test_the_second_operator_is_told_who_holds_the_lock(sshd: Server) -> None:
    with host_lock(sshd.remote(), "ann@desk pid 7"):
        with pytest.raises(KitError) as caught, host_lock(sshd.remote(), "bob"):
            pytest.fail("two holders")
        assert caught.value.exit_code is ExitCode.LOCKED
        # Simulated hosts that somebody works on right now share this machine's /proc, so more holders may be listed.
        holders = caught.value.failures[0].found.removeprefix("held by ").split(" and ")
        assert any(re.fullmatch(r"ann@desk pid 7 since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", holder) for holder in holders)
        assert not any(holder.startswith("bob") for holder in holders)
    with host_lock(sshd.remote(), "bob"):
        pass


def test_a_killed_holder_leaves_no_lock(sshd: Server) -> None:
    c = sshd.connection()
    program = (
        "import sys, time\nfrom kit.apply.ssh import Remote, host_lock\nfrom kit.spec.model import Connection\n"
        f"with host_lock(Remote(Connection.model_validate_json({c.model_dump_json()!r}), 'node'), 'victim'):\n"
        "    print('held', flush=True)\n    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as holder:
        assert holder.stdout and holder.stdout.readline() == b"held\n"
        holder.kill()
    deadline = time.monotonic() + 5
    while True:
        try:
            with host_lock(sshd.remote(), "next"):
                return
        except KitError as error:
            assert error.exit_code is ExitCode.LOCKED and time.monotonic() < deadline
            time.sleep(0.1)
