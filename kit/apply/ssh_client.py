"""The OpenSSH client: its options, and talking to its process within limits of time and size.

Edge: reads and writes pipes, keeps a private runtime directory. Nothing here trusts a key on first use or can ask for a password.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import selectors
import shlex
import signal
import stat
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from kit.errors import ExitCode, KitError, failure
from kit.spec.model import Connection

MAX_STDOUT = 32 * 1024 * 1024
MAX_STDERR = 1024 * 1024
CONNECT_TIMEOUT_S = 10
_SOCKET_PATH_LIMIT = 80
"""A unix socket path holds 107 bytes, and ssh adds a 17 byte suffix while it makes one."""

_RSA = "rsa-sha2-512,rsa-sha2-256"


def runtime_dir() -> Path:
    """A directory of mode 0700 owned by this user, with a short path, for control sockets and ssh's own log.

    Raises KitError(INTERNAL) when someone else owns that path: a socket there could be theirs.
    """
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if base and len(base) < _SOCKET_PATH_LIMIT - 30 and os.access(base, os.W_OK):
        path = Path(base) / "b300kit"
    else:
        path = Path(tempfile.gettempdir()) / f"b300kit-{os.getuid()}"
        if len(str(path)) > _SOCKET_PATH_LIMIT - 22:
            path = Path("/tmp") / f"b300kit-{os.getuid()}"  # noqa: S108  (owner and mode are checked below)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise KitError(
            failure(
                "ssh.runtime_dir",
                str(path),
                f"a directory of mode 0700 owned by uid {os.getuid()}",
                f"mode {stat.filemode(found.st_mode)}, uid {found.st_uid}",
                "remove it, or set XDG_RUNTIME_DIR to a private directory",
            ),
            ExitCode.INTERNAL,
        )
    return path


def key_files(connection: Connection) -> list[str]:
    """The declared private key's path, as ssh takes it; empty when the agent's keys are meant.

    Raises KitError(USAGE) for ``~/`` where nothing says whose home that is: HOME is not set, and the user has no entry.
    """
    if connection.identity_file is None:
        return []
    try:
        return [str(Path(connection.identity_file).expanduser())]
    except RuntimeError:
        found = f"{connection.identity_file}, HOME not set, and no entry for uid {os.getuid()} in /etc/passwd"
        raise KitError(
            failure("ssh.home", "connection.identity_file", "a home folder for ~", found, "set HOME, or write the whole path"),
            ExitCode.USAGE,
        ) from None


def ssh_options(connection: Connection, name: str, connect_timeout_s: int = CONNECT_TIMEOUT_S) -> list[str]:
    """Options for ssh (and for Ansible's ``ssh_common_args``), without address, port and user.

    Raises KitError as :func:`key_files` and :func:`runtime_dir` do.

    The control socket's name hashes everything that was checked when the connection was made, so that a spec
    with another key never rides on a connection that an earlier key opened (``%C`` would not tell them apart).
    """
    kind, key = connection.host_key.split(" ", 1)
    identity = key_files(connection)
    seed = "\0".join([name, connection.address, str(connection.port), connection.user, connection.host_key, *identity])
    socket = runtime_dir() / hashlib.sha256(seed.encode()).hexdigest()[:20]
    values = {
        "BatchMode": "yes",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "StrictHostKeyChecking": "yes",
        "HostKeyAlias": name,
        "HostKeyAlgorithms": _RSA if kind == "ssh-rsa" else kind,
        "KnownHostsCommand": f"/usr/bin/echo {name} {kind} {key}",
        "UserKnownHostsFile": "none",
        "GlobalKnownHostsFile": "none",
        "UpdateHostKeys": "no",
        "CheckHostIP": "no",
        "ForwardAgent": "no",
        "ForwardX11": "no",
        "ConnectTimeout": str(connect_timeout_s),
        "ConnectionAttempts": "1",
        "ServerAliveInterval": "5",
        "ServerAliveCountMax": "3",
        "ControlMaster": "auto",
        "ControlPersist": "60",
        "ControlPath": _quoted(str(socket)),
    }
    if identity:
        values |= {"IdentityFile": _quoted(identity[0]), "IdentitiesOnly": "yes"}
    options = ["-F", "none"]
    for option, value in values.items():
        options += ["-o", f"{option}={value}"]
    return options


def _quoted(path: str) -> str:
    """A path as a value of ``-o``: ssh splits at spaces and expands ``%``, and a home or runtime folder may have either."""
    return path if re.fullmatch(r"[A-Za-z0-9/._+@-]*", path) else f'"{path.replace("%", "%%")}"'


def command_name(command: Sequence[str]) -> str:
    """The command for an error text; arguments may be long and are left out beyond the first few."""
    words = shlex.join(command)
    return words if len(words) <= 80 else words[:77] + "..."


def new_log() -> Path:
    """An empty private file for ssh's own messages."""
    handle, path = tempfile.mkstemp(prefix="log-", dir=runtime_dir())
    os.close(handle)
    return Path(path)


class Overrun(Exception):
    """The process took too long, or said too much."""

    def __init__(self, code: str, found: str, next: str, expected: str = "") -> None:
        super().__init__(found)
        self.code, self.found, self.next, self.expected = code, found, next, expected


def exchange(process: subprocess.Popen[bytes], stdin: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Feed stdin and collect both outputs, within the time and the size limits."""
    assert process.stdin and process.stdout and process.stderr
    limits: dict[IO[bytes], int] = {process.stdout: MAX_STDOUT, process.stderr: MAX_STDERR}
    collected: dict[IO[bytes], bytearray] = {stream: bytearray() for stream in limits}
    unsent = memoryview(stdin)
    with selectors.DefaultSelector() as selector:
        for stream in limits:
            os.set_blocking(stream.fileno(), False)
            selector.register(stream, selectors.EVENT_READ)
        os.set_blocking(process.stdin.fileno(), False)
        if unsent:
            selector.register(process.stdin, selectors.EVENT_WRITE)
        else:
            process.stdin.close()
        while selector.get_map():
            left = deadline - time.monotonic()
            if left <= 0:
                raise Overrun("host.timeout", "none", "look at the host's load and log; then try again")
            for key, _ in selector.select(left):
                if key.fileobj is process.stdin:
                    try:
                        unsent = unsent[os.write(process.stdin.fileno(), unsent[:65536]) :]
                    except BrokenPipeError:
                        unsent = unsent[len(unsent) :]
                    if not unsent:
                        selector.unregister(process.stdin)
                        process.stdin.close()
                    continue
                stream = process.stdout if key.fileobj is process.stdout else process.stderr
                data = os.read(stream.fileno(), 65536)
                collected[stream] += data
                if len(collected[stream]) > limits[stream]:
                    text = f"more than {limits[stream]} bytes"
                    raise Overrun("host.output", text, "something on the host writes without end", "a bounded answer")
                if not data:
                    selector.unregister(stream)
    try:
        process.wait(max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        raise Overrun("host.timeout", "closed outputs, but no end", "look at the host's load; then try again") from None
    return bytes(collected[process.stdout]), bytes(collected[process.stderr])


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End an ssh client with everything it started. The shared connection left that group and lives on."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream and not stream.closed:
            with contextlib.suppress(BrokenPipeError):
                stream.close()
