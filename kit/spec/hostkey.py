"""A host's SSH key before it is pinned: fetched without trust, and accepted only by its fingerprint."""

from __future__ import annotations

import base64
import binascii
import hashlib
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass

from kit.errors import ExitCode, KitError, failure

PREFERRED = ("ssh-ed25519", "ecdsa-sha2-nistp521", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp256", "ssh-rsa")
SCAN_TIMEOUT_S = 10


@dataclass(frozen=True)
class HostKey:
    """A public key as the host showed it."""

    kind: str
    blob: str
    """Base64, as in a ``.pub`` file."""

    @property
    def fingerprint(self) -> str:
        """``SHA256:...`` as ``ssh-keygen -l`` prints it."""
        return "SHA256:" + base64.b64encode(hashlib.sha256(base64.b64decode(self.blob)).digest()).decode().rstrip("=")

    @property
    def text(self) -> str:
        """What a spec pins."""
        return f"{self.kind} {self.blob}"


def parse(scanned: str) -> list[HostKey]:
    """Keys from ssh-keyscan's lines, the preferred kind first; comments, and lines that are no key, are left out."""
    found = []
    for line in scanned.splitlines():
        fields = line.split()
        if len(fields) < 3 or fields[0].startswith("#") or fields[1] not in PREFERRED:
            continue
        try:
            base64.b64decode(fields[2], validate=True)
        except binascii.Error:
            continue
        found.append(HostKey(fields[1], fields[2]))
    return sorted(dict.fromkeys(found), key=lambda key: PREFERRED.index(key.kind))


def scan(address: str, port: int) -> list[HostKey]:
    """Ask the host for its keys. Nothing is proven by this: the answer may come from anyone on the way.

    Raises KitError(UNREACHABLE, ssh.unreachable) when none comes.
    """
    command = ["ssh-keyscan", "-T", str(SCAN_TIMEOUT_S), "-p", str(port), "-t", "ed25519,ecdsa,rsa", "--", address]
    where = f"{address} port {port}"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=3 * SCAN_TIMEOUT_S, stdin=subprocess.DEVNULL, check=False
        )
    except FileNotFoundError:
        missing = failure("ssh.client", "this machine", "ssh-keyscan", "none", "apt-get install openssh-client")
        raise KitError(missing, ExitCode.INTERNAL) from None
    except subprocess.TimeoutExpired:
        slow = failure("ssh.unreachable", where, "a host key", f"no answer in {3 * SCAN_TIMEOUT_S} s", "check address and port")
        raise KitError(slow, ExitCode.UNREACHABLE) from None
    keys = parse(done.stdout)
    if not keys:
        said = next((line for line in reversed(done.stderr.splitlines()) if line and not line.startswith("#")), "no answer")
        raise KitError(
            failure("ssh.unreachable", where, "a host key", said, "check address and port, and that sshd runs"),
            ExitCode.UNREACHABLE,
        )
    return keys


def accept(keys: Sequence[HostKey], fingerprint: str, address: str) -> HostKey:
    """The key whose fingerprint an operator named.

    Raises KitError: USAGE (ssh.host_key_unconfirmed) when none was named, UNREACHABLE (ssh.host_key) when no key has it.
    """
    offered = ", ".join(f"{key.fingerprint} ({key.kind})" for key in keys)
    if not fingerprint:
        raise KitError(
            failure(
                "ssh.host_key_unconfirmed",
                address,
                "a fingerprint that you compared with the host's own",
                offered,
                "run `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host's console; "
                f"if it is the same, add --accept-host-key {keys[0].fingerprint}",
            ),
            ExitCode.USAGE,
        )
    for key in keys:
        if key.fingerprint == fingerprint.strip().rstrip("="):
            return key
    raise KitError(
        failure("ssh.host_key", address, fingerprint, offered, "do not go on: another machine answers, or it was reinstalled"),
        ExitCode.UNREACHABLE,
    )
