"""Sends the probe to a host and types its answer. Edge: ssh, and the cache of measured core speeds."""

from __future__ import annotations

import json
from typing import Any

from pydantic import ValidationError

from kit.apply.ssh import Completed, Remote
from kit.errors import ExitCode, KitError, failure
from kit.facts.burn_in import with_burn_in
from kit.facts.measured_cache import load, load_burn_in
from kit.facts.model import Facts, parse
from kit.facts.probe import COMMAND, probe_script
from kit.facts.request import ProbeRequest
from kit.spec.target import Target

SLOW_TOOLS_S = 60.0
"""Longest any chain of tools on the host may take by its own limits, beyond NVML's."""


def collect(target: Target, request: ProbeRequest, remote: Remote) -> tuple[Facts, dict[str, Any]]:
    """Facts of one host, with what was measured earlier in the same boot, and the probe's own JSON. Raises as :func:`read`."""
    facts, raw = read(request, remote)
    return with_measured(facts, target.name), raw


def read(request: ProbeRequest, remote: Remote) -> tuple[Facts, dict[str, Any]]:
    """Facts as the probe reads them now, and its own JSON.

    Raises KitError as :meth:`Remote.run` does, and INTERNAL with probe.failed, probe.json or probe.shape when the probe
    itself is at fault.
    """
    raw = run_script(remote, probe_script(), request.encoded(), request.nvml_timeout_s + SLOW_TOOLS_S)
    return _typed(raw, remote), raw


def with_measured(facts: Facts, name: str) -> Facts:
    """The same facts with what was measured earlier in this boot: core speeds, burn-in."""
    facts = with_burn_in(facts, load_burn_in(name, facts.host.boot_id))
    cached = load(name, facts.host.boot_id)
    if cached is None:
        return facts
    measured, notes = cached
    cpu = facts.cpu.model_copy(update={"measured": measured})
    return facts.model_copy(update={"cpu": cpu, "notes": (*facts.notes, *notes)})


def run_script(remote: Remote, script: bytes, argument: str, timeout_s: float) -> dict[str, Any]:
    """Run one of our scripts as root on the host; its JSON object.

    The argument goes ahead of the script, not onto the command line: sudo writes that into the host's log each time.
    """
    given = f"import sys\nsys.argv[1:] = [{argument!r}]\n".encode()
    done = remote.run(remote.privileged(COMMAND), given + script, timeout_s)
    if done.status != 0:
        raise _fault("probe.failed", remote, "status 0", f"status {done.status}: {_last_words(done)}")
    try:
        document = json.loads(done.stdout)
    except ValueError as error:
        raise _fault("probe.json", remote, "one JSON document", f"{error}: {done.stdout[:120]!r}") from None
    if not isinstance(document, dict):
        raise _fault("probe.json", remote, "a JSON object", type(document).__name__)
    return document


def _typed(raw: dict[str, Any], remote: Remote) -> Facts:
    try:
        return parse(raw)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise _fault("probe.shape", remote, f"{place} as kit.facts.model has it", first["msg"]) from None


def _last_words(done: Completed) -> str:
    lines = done.stderr.strip().splitlines()
    return lines[-1][:300] if lines else "no message"


def _fault(code: str, remote: Remote, expected: str, found: str) -> KitError:
    return KitError(
        failure(code, f"{remote.where}: probe", expected, found, "this is a fault of b300kit: report it with the record"),
        ExitCode.INTERNAL,
    )
