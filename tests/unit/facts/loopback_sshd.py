"""A real sshd on loopback, with keys of its own, for what only a real client and server can show."""

from __future__ import annotations

import getpass
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kit.apply.ssh import Remote, ssh_options
from kit.spec.model import Connection

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/bin:/sbin")


@dataclass
class Server:
    port: int
    host_key: str
    identity: Path
    process: subprocess.Popen[bytes]
    bin: Path
    """The only directory on the PATH of its sessions."""

    def connection(self, **changes: object) -> Connection:
        values = {
            "address": "127.0.0.1",
            "port": self.port,
            "user": getpass.getuser(),
            "host_key": self.host_key,
            "identity_file": str(self.identity),
        }
        return Connection.model_validate(values | changes)

    def remote(self, name: str = "node", **changes: object) -> Remote:
        return Remote(self.connection(**changes), name, connect_timeout_s=3)


def _key(path: Path) -> str:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def other_key(directory: Path) -> str:
    return _key(directory / "other")


def end_shared(remote: Remote) -> None:
    """End the shared connection, when there is one; the kit leaves that to ControlPersist."""
    c = remote.connection
    command = ["ssh", *ssh_options(c, remote.name), "-p", str(c.port), "-l", c.user, "-O", "exit", "--", c.address]
    subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False)


@pytest.fixture
def runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # pytest's own directories are too deep for a unix socket.
    short = Path("/tmp") / f"k{tmp_path.name[-20:]}{free_port()}"
    short.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(short))
    return short


@pytest.fixture
def sshd(tmp_path: Path, runtime: Path) -> Iterator[Server]:
    if SSHD is None:
        pytest.skip("no sshd here (Debian package openssh-server)")
    port = free_port()
    host_key = _key(tmp_path / "host")
    user_key = _key(tmp_path / "user")
    (tmp_path / "authorized").write_text(user_key + "\n")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name in ("env", "sh", "cat", "flock", "head", "timeout", "tr", "tail", "sleep", "echo"):
        (commands / name).symlink_to(str(shutil.which(name)))
    (commands / "python3").symlink_to(Path(sys.executable).resolve())
    config = tmp_path / "sshd_config"
    config.write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {tmp_path / 'host'}\nAuthorizedKeysFile {tmp_path / 'authorized'}\n"
        f"StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nSetEnv PATH={commands} HOME={tmp_path}\n"
        "PermitRootLogin prohibit-password\nMaxStartups 50\n"
    )
    if getpass.getuser() == "root":
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen([SSHD, "-D", "-e", "-f", str(config)], stderr=(tmp_path / "log").open("wb"))
    server = Server(port, host_key, tmp_path / "user", process, commands)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.02)
    else:
        pytest.fail((tmp_path / "log").read_text())
    yield server
    end_shared(server.remote())
    process.terminate()
    process.wait()
    shutil.rmtree(runtime)
