"""What OpenSSH, sudo and a missing interpreter say when they fail, as stable codes. Pure."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence

from kit.spec.model import Connection

Problem = tuple[str, str, str, str]
"""Code, expected, found, next."""

_UNREACHABLE = (
    (r"Could not resolve hostname", "a name that resolves", "check `connection.address` and DNS"),
    (r"Connection refused", "a listening sshd", "check `connection.port`, and that sshd runs on the host"),
    (r"timed out|not responding", "an answer", "check that the host is up, and the firewalls between"),
    (r"No route to host|Network is unreachable", "a route", "check `connection.address` and the network"),
    (r"Connection (closed|reset)|disconnect|broken pipe|mux_client|kex_exchange", "an open connection", "try again"),
)


def ssh_failure(log: str, connection: Connection, no_key: str = "") -> Problem:
    """Name what OpenSSH's own log tells. ``no_key``: why the declared key file cannot be read here, which ssh does not say."""
    last = " / ".join(line.strip() for line in log.splitlines() if line.strip() and "@@@" not in line)[-400:]
    if re.search(r"Host key verification failed|host key is known for|no matching host key type|IDENTIFICATION HAS CHANGED", log):
        sent = re.search(r"SHA256:[A-Za-z0-9+/]{43}", log)
        found = f"another key, {sent.group()}" if sent else last
        expected = f"the pinned key, {fingerprint(connection.host_key)}"
        return "ssh.host_key", expected, found, "find out why; only if the host was reinstalled, pin its new key in the spec"
    if re.search(r"Permission denied|Too many authentication failures|no mutual signature", log):
        who = connection.identity_file or "the ssh agent's keys"
        if no_key:
            step = "put the private key there, or correct `connection.identity_file`"
            return "ssh.auth", f"the key file {who} on this machine", no_key, step
        return "ssh.auth", f"a login as {connection.user} with {who}", last, "install the public key on the host, or fix the spec"
    if not last:
        return "ssh.unreachable", "a connection that stays open", "it broke during the command", "try again"
    for pattern, expected, what_next in _UNREACHABLE:
        if re.search(pattern, log, re.IGNORECASE):
            return "ssh.unreachable", expected, last, what_next
    return "ssh.unreachable", "an open connection", last, "run the same with `ssh -v`"


def no_user(stderr: str) -> Problem | None:
    """ssh will not start for a user that this machine's /etc/passwd lacks, as in a container with an arbitrary uid."""
    said = re.match(r"No user exists for uid \d+", stderr)
    if said is None:
        return None
    return "ssh.client", "a user that the control machine knows", said.group(), "give that uid an entry in /etc/passwd"


def host_failure(command: Sequence[str], stderr: str) -> Problem | None:
    """Name a refusal of sudo or a missing interpreter; None when the command itself failed."""
    said = stderr.strip()[-300:]
    if re.search(r"^b300kit: python3 is ", stderr, re.MULTILINE):
        return "host.python", "a complete python3, 3.9 or later", said, "apt install python3 on the host"
    if re.search(r"(sudo|env|sh|exec): .{0,4}python3.{0,4}: (command )?not found|python3.{0,4}: No such file", stderr):
        return "host.python", "python3 (3.9 or later) on the host", said, "apt install python3 on the host"
    if "sudo" not in command[:1]:
        return None
    if re.search(r"(env|sh): .{0,4}sudo.{0,4}: (command )?(not found|No such file)", stderr):
        return "host.sudo", "sudo on the host", said, "apt install sudo on the host, or connect as root"
    if re.search(r"^sudo: .*(password|terminal|tty|may not run|setuid|uid)|not in the sudoers", stderr, re.MULTILINE):
        return "host.sudo", "sudo without a password", said, "give the user a NOPASSWD rule under /etc/sudoers.d"
    if re.search(r"^Sorry, user .* (may not run|is not allowed to)", stderr, re.MULTILINE):
        return "host.sudo", "a sudo rule for this user", said, "give the user a NOPASSWD rule under /etc/sudoers.d"
    return None


def fingerprint(host_key: str) -> str:
    """``SHA256:...`` of a public key line, as OpenSSH prints it."""
    digest = hashlib.sha256(base64.b64decode(host_key.split()[1])).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
