"""Commands on one host over OpenSSH, and the lock that keeps two runs off one host.

Edge: starts ``ssh`` processes. Each way of failing has its own code; see :mod:`kit.apply.ssh_errors`.
"""

from __future__ import annotations

import contextlib
import re
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kit.apply.ssh_client import CONNECT_TIMEOUT_S, Overrun, command_name, exchange, kill_group, new_log, ssh_options
from kit.apply.ssh_errors import host_failure, no_user, ssh_failure
from kit.errors import ExitCode, KitError, failure
from kit.spec.model import Connection

__all__ = ["Completed", "Remote", "host_lock", "ssh_options"]

LOCK_FILE = "/etc/machine-id"
"""Exists on every systemd host, is readable by all, and nobody else locks it."""
_HELD_BY_OTHER = 75
_BEAT_S = 15.0
_SILENCE_S = 60
"""A control machine that fell off the network loses the lock after this long."""


@dataclass(frozen=True)
class Completed:
    """A remote command that ran to its end, whatever its status."""

    command: tuple[str, ...]
    status: int
    stdout: bytes
    stderr: str
    seconds: float


class Remote:
    """Commands on one host over one shared connection."""

    def __init__(self, connection: Connection, name: str, connect_timeout_s: int = CONNECT_TIMEOUT_S) -> None:
        self.connection = connection
        self.name = name
        self.connect_timeout_s = connect_timeout_s

    @property
    def where(self) -> str:
        """For error texts."""
        return f"{self.name} ({self.connection.user}@{self.connection.address} port {self.connection.port})"

    def argv(self, command: Sequence[str], log: Path) -> list[str]:
        """The ssh process for a remote command; ``log`` keeps ssh's own words apart from the command's."""
        c = self.connection
        options = ssh_options(c, self.name, self.connect_timeout_s)
        where = ["-p", str(c.port), "-l", c.user, "-E", str(log), "-T", "--", c.address]
        # The login shell may be any; `env` gives every tool, sudo too, the messages that are matched below.
        return ["ssh", *options, *where, shlex.join(["env", "LC_ALL=C", *command])]

    def privileged(self, command: Sequence[str]) -> list[str]:
        """The command as root, never with a password prompt."""
        return list(command) if self.connection.user == "root" else ["sudo", "-n", *command]

    def start(self, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """A remote command with three pipes, in a process group of its own; the caller ends it."""
        try:
            return subprocess.Popen(
                self.argv(command, log),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except FileNotFoundError:
            raise KitError(
                failure("ssh.client", "control machine", "the OpenSSH client", "no ssh on PATH", "apt install openssh-client"),
                ExitCode.INTERNAL,
            ) from None

    def run(self, command: Sequence[str], stdin: bytes = b"", timeout_s: float = 60.0) -> Completed:
        """Run a command on the host and wait for it.

        Raises KitError(UNREACHABLE) with ssh.unreachable, ssh.host_key, ssh.auth, host.sudo or host.python;
        KitError(TIMEOUT) with host.timeout when it did not end in ``timeout_s`` (ssh's process group is killed).
        Any other status of the command is returned. 255 is taken as a lost connection: over a shared connection ssh says
        nothing else when the link breaks.
        """
        began = time.monotonic()
        log = new_log()
        try:
            process = self.start(command, log)
            try:
                stdout, stderr = exchange(process, stdin, began + timeout_s)
                status = process.wait()
            except Overrun as overrun:
                raise KitError(
                    failure(
                        overrun.code,
                        f"{self.where}: {command_name(command)}",
                        overrun.expected or f"an answer within {timeout_s:g} s",
                        overrun.found,
                        overrun.next,
                    ),
                    ExitCode.TIMEOUT,
                ) from None
            finally:
                kill_group(process)
            done = Completed(tuple(command), status, stdout, stderr.decode(errors="replace"), time.monotonic() - began)
            self.check(done, log.read_text(errors="replace"))
            return done
        finally:
            log.unlink(missing_ok=True)

    def check(self, done: Completed, ssh_log: str) -> None:
        """Raise when ssh, sudo or a missing interpreter failed rather than the command itself."""
        problem = None
        if done.status == 255:
            # What ssh says before it opens its log is on standard error, among the remote command's words.
            problem = no_user(done.stderr) or ssh_failure(ssh_log, self.connection, no_key(self.connection))
        elif done.status != 0:
            problem = host_failure(done.command, done.stderr)
        if problem:
            code, expected, found, what_next = problem
            raise KitError(failure(code, self.where, expected, found, what_next), ExitCode.UNREACHABLE)


def no_key(connection: Connection) -> str:
    """Why the declared private key file cannot be used on this machine; "" when it can, or none is declared."""
    if connection.identity_file is None:
        return ""
    try:
        with Path(connection.identity_file).expanduser().open("rb"):
            return ""
    except (OSError, RuntimeError) as error:  # RuntimeError: a home folder that cannot be told
        return getattr(error, "strerror", None) or str(error)


# $1: file, $2: status for "held by another", $3: longest silence, $4: who (only to be read in /proc/PID/cmdline).
_SCRIPT = r"""
flock --nonblock --exclusive --conflict-exit-code "$2" "$1" sh -c '
  echo held
  while [ -n "$(timeout "$3" head -c 1)" ]; do :; done
' b300kit-lock "$1" "$2" "$3" "$4"
status=$?
[ "$status" = "$2" ] || exit "$status"
us=$(printf '\037')
for p in /proc/[0-9]*; do
  line=$(tr '\000' '\037' 2>/dev/null <"$p/cmdline") || continue
  case $line in *"${us}b300kit-lock$us"*) printf '%s\n' "$line" | tail -n 1 ;; esac
done
exit "$2"
"""


@contextlib.contextmanager
def host_lock(remote: Remote, who: str, timeout_s: float = 20.0) -> Iterator[Callable[[], None]]:
    """Hold the host's lock for the duration; gives a check that raises KitError(LOCKED, host.lock_lost) once it is gone,
    as after a suspend of the control machine: then another run may be at work there.

    ``who``, and since when by this machine's clock, is shown to whoever finds it held; control characters are dropped.
    Raises KitError(LOCKED) with host.locked when another holds it, KitError(UNREACHABLE) as :meth:`Remote.run` does,
    KitError(TIMEOUT) when no answer came.
    """
    since = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    label = re.sub(r"[^\x20-\x7e]", "?", f"{who[:120]} since {since}")
    command = ["sh", "-c", _SCRIPT, "b300kit", LOCK_FILE, str(_HELD_BY_OTHER), str(_SILENCE_S), label]
    log = new_log()
    process = remote.start(command, log)
    stop = threading.Event()
    try:
        _wait_until_held(remote, process, command, log, timeout_s)
        beat = threading.Thread(target=_beat, args=(process, stop), name=f"lock-{remote.name}", daemon=True)
        beat.start()
        try:
            yield lambda: _still_held(remote, process)
        finally:
            stop.set()
            beat.join()
            _release(process)
    finally:
        kill_group(process)
        log.unlink(missing_ok=True)


def _still_held(remote: Remote, process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        found = "the session that held it has ended"
        raise KitError(
            failure("host.lock_lost", remote.where, "the lock taken at the start", found, "run again"), ExitCode.LOCKED
        )


def _wait_until_held(remote: Remote, process: subprocess.Popen[bytes], command: list[str], log: Path, timeout_s: float) -> None:
    assert process.stdout and process.stderr
    # A blocking read cannot be bounded by itself: the timer ends the ssh client, and the read sees the end of file.
    timer = threading.Timer(timeout_s, _kill_client, args=(process,))
    timer.start()
    try:
        first = process.stdout.readline()
        if first == b"held\n":
            return
        rest = process.stdout.read()
        said = process.stderr.read().decode(errors="replace")
        status = process.wait()
    finally:
        timer.cancel()
    if status == _HELD_BY_OTHER:
        holder = _holder((first + rest).decode(errors="replace"))
        raise KitError(
            failure("host.locked", remote.where, "no other run", holder, "wait for it to end; its lock ends with it"),
            ExitCode.LOCKED,
        )
    if status < 0:
        raise KitError(
            failure("host.timeout", f"{remote.where}: lock", f"an answer within {timeout_s:g} s", "none", "try again"),
            ExitCode.TIMEOUT,
        )
    remote.check(Completed(tuple(command), status, first + rest, said, 0.0), log.read_text(errors="replace"))
    raise KitError(
        failure("host.lock", remote.where, f"a lock on {LOCK_FILE}", f"status {status}: {said.strip()[-200:]}", "see the host"),
        ExitCode.UNREACHABLE,
    )


def _kill_client(process: subprocess.Popen[bytes]) -> None:
    """End the ssh client only; its pipes are still being read."""
    with contextlib.suppress(ProcessLookupError):
        process.kill()


def _holder(listing: str) -> str:
    labels = sorted({line.strip("\x1f").split("\x1f")[-1] for line in listing.splitlines() if line})
    return "held by " + " and ".join(labels) if labels else "held by another session"


def _beat(process: subprocess.Popen[bytes], stop: threading.Event) -> None:
    assert process.stdin
    while not stop.wait(_BEAT_S):
        try:
            process.stdin.write(b".")
            process.stdin.flush()
        except (BrokenPipeError, ValueError):
            return


def _release(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin
    with contextlib.suppress(BrokenPipeError):
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(5)
