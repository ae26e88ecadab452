"""``invoke fleet.init``: a live host in, a proposed spec out. An edge: talks to the host, asks a person, writes one file."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path

from pydantic import ValidationError

from kit import paths
from kit.apply.ssh import Remote
from kit.errors import ExitCode, KitError, failure
from kit.facts.collect import read
from kit.facts.model import Facts
from kit.facts.request import ProbeRequest
from kit.facts.unknown import is_known
from kit.outcome import Outcome
from kit.spec import hostkey, propose
from kit.spec.commands import known_names
from kit.spec.load import load_document, shown
from kit.spec.model import NAME, Connection, Lock

log = logging.getLogger("kit.spec.init")

_PLACE = re.compile(r"(?P<user>[^@]+)@(\[(?P<six>[0-9A-Fa-f:]+)\]|(?P<address>[^:\[\]]+))(:(?P<port>[0-9]{1,5}))?\Z")


def parse_place(text: str) -> tuple[str, str, int]:
    """``user@address[:port]`` (IPv6 in brackets) as (user, address, port). Raises KitError(USAGE)."""
    match = _PLACE.match(text)
    if not match:
        problem = failure(
            "cli.bad_value", "--host", "USER@ADDRESS[:PORT], IPv6 in [ ]", repr(text), "e.g. operator@192.0.2.10:22"
        )
        raise KitError(problem, ExitCode.USAGE)
    return match["user"], match["six"] or match["address"], int(match["port"] or 22)


def host_name(asked: str, facts: Facts) -> str:
    """The name asked for, or the host's own made to fit. Raises KitError(USAGE)."""
    own = facts.host.hostname if is_known(facts.host.hostname) else ""
    name = asked or re.sub(r"[^a-z0-9-]+", "-", own.partition(".")[0].lower()).strip("-")
    _check_name(name, "give --name")
    return name


def _check_name(name: str, step: str) -> None:
    if not re.fullmatch(NAME, name):
        problem = failure("cli.bad_value", "--name", "lower-case letters, digits, hyphens", repr(name), step)
        raise KitError(problem, ExitCode.USAGE)


def propose_host(place: str, name: str, accept_host_key: str, identity_file: str, write: bool) -> Outcome:
    """Fetch and accept the host key, read the host's facts, propose its spec; ``write`` puts it into the first fleet folder.

    Never overwrites a file, never pins a key that nobody compared. Raises KitError.
    """
    user, address, port = parse_place(place)
    if name:
        _check_name(name, "choose such a name")
    folder = paths.fleet_dirs()[0] / "hosts"
    if name and write:
        _refuse_existing(name)
    keys = hostkey.scan(address, port)
    key = hostkey.accept(keys, accept_host_key or _asked(keys, address), address)
    try:
        connection = Connection(address=address, port=port, user=user, host_key=key.text, identity_file=_key_file(identity_file))
    except ValidationError as error:
        found = "; ".join(f"{item['loc'][-1]}: {item['input']!r}" for item in error.errors())
        problem = failure("cli.bad_value", "--host", "a plain user, address, port and key file", found, "correct it")
        raise KitError(problem, ExitCode.USAGE) from error
    alias = name or "new-host"
    log.info("%s: reading facts", address)
    facts, _ = read(ProbeRequest(packages=propose.HOLD_CANDIDATES), Remote(connection, alias))
    name = host_name(name, facts)
    add = _unlocked(facts)
    text, missing = propose.propose(facts, name, connection, known_names(), add)
    result = {"name": name, "spec": text, "fill_in": missing, "lock": add, "host_key": key.text, "fingerprint": key.fingerprint}
    told = f"to fill in: {', '.join(missing)}" if missing else "nothing is left to fill in"
    if add:
        told += f"; to add to {shown(paths.fleet_dirs()[0])}/lock.yml, each as `NAME: null`: {', '.join(add)}"
    if not write:
        return Outcome(
            "fleet.init", result=result, text=text + f"# {told}\n# add --write to keep it as {shown(folder)}/{name}.yml"
        )
    path = folder / f"{name}.yml"
    _refuse_existing(name)
    _write_new(path, text)
    return Outcome("fleet.init", result={**result, "path": path}, text=f"wrote {shown(path)}; {told}")


def _unlocked(facts: Facts) -> list[str]:
    """As the fleet's lock is now; one that cannot be read is `fleet.check`'s to tell."""
    directory = paths.fleet_dirs()[0]
    try:
        return propose.unlocked(facts, load_document(directory, directory / "lock.yml", Lock))
    except KitError:
        return []


def _key_file(given: str) -> str | None:
    """As a spec holds it: valid from any folder."""
    if not given or given.startswith("~/"):
        return given or None
    return str(Path(given).absolute())


def _asked(keys: list[hostkey.HostKey], address: str) -> str:
    """Ask at a terminal whether the key is the host's. "" when nobody is there to ask, or the answer is not yes."""
    if not sys.stdin.isatty():
        return ""
    sys.stderr.write(
        f"{address} shows the host key {keys[0].fingerprint} ({keys[0].kind}).\n"
        "Compare it with `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` on the host's console.\n"
        "Is it the same? Type yes to pin it: "
    )
    sys.stderr.flush()
    return keys[0].fingerprint if sys.stdin.readline().strip().lower() == "yes" else ""


def _refuse_existing(name: str) -> None:
    """A name is taken when any fleet in use has it: ``--host`` must say one host."""
    for directory in paths.fleet_dirs():
        path = directory / "hosts" / f"{name}.yml"
        if os.path.lexists(path):
            raise KitError(
                failure("fleet.exists", shown(path), "no host of this name", "one", "choose another --name, or move it away"),
                ExitCode.USAGE,
            )


def _write_new(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise KitError(
            failure("fleet.write", shown(path), "a file written", error.strerror or str(error), "correct that and run it again"),
            ExitCode.INTERNAL,
        ) from error
