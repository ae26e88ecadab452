"""What exactly was gated, and the pass that says so. Pure.

A pass holds for one boot of one host, one start of one engine, one image, one command and one set of weights. It is data that
join checks against what is there now: nothing else lets a node take traffic.
"""

from __future__ import annotations

from collections.abc import Sequence

from kit.errors import Failure, failure
from kit.gates.declare import Frozen
from kit.gates.names import GateName
from kit.gates.verdict import GateResult, overall

GATE_VERSION = 1
"""Raised whenever a gate gets stricter or new: passes of an earlier version end."""


class Identity(Frozen):
    """What is running. None: could not be read, and then no pass is given and none is valid."""

    host: str
    profile: str
    model: str
    """The name it serves."""
    image_id: str | None
    plan_digest: str | None
    argv_sha256: str | None
    weights_sha256: str | None
    boot_id: str | None
    invocation_id: str | None
    """systemd's id of this start of the engine's unit; a restarted engine has another."""


HELD = ("host", "profile", "model", "image_id", "plan_digest", "argv_sha256", "weights_sha256", "boot_id", "invocation_id")
MEANS = {
    "host": "of another host",
    "profile": "of another profile",
    "model": "of another model",
    "image_id": "of another image",
    "plan_digest": "of another state of the host",
    "argv_sha256": "of another command",
    "weights_sha256": "of other weights",
    "boot_id": "from before a reboot",
    "invocation_id": "of an engine that was restarted since",
}


class Pass(Frozen):
    """Given by :func:`grant` alone."""

    schema_version: int = 1
    gate_version: int
    identity: Identity
    gates: tuple[GateName, ...]
    """All that passed."""
    run: str
    """Id of the record that holds the evidence."""
    at: float
    """Seconds since the epoch, the control machine's clock."""


def grant(
    identity: Identity, after: Identity, required: Sequence[GateName], results: Sequence[GateResult], run: str, at: float
) -> Pass | tuple[Failure, ...]:
    """A pass, or every reason why not. ``after`` is the identity read once more when the gates had ended."""
    _, failures = overall(required, results)
    reasons = list(failures)
    for key in HELD:
        before, now = getattr(identity, key), getattr(after, key)
        if before is None or now is None:
            reasons.append(failure("pass.unknown", f"{identity.host} {key}", "a value", "could not be read", "see the record"))
        elif before != now:
            reasons.append(
                failure("pass.moved", f"{identity.host} {key}", before, now, "it changed while it was gated: run again")
            )
    if reasons:
        return tuple(reasons)
    return Pass(gate_version=GATE_VERSION, identity=identity, gates=tuple(required), run=run, at=at)


def invalid(given: Pass | None, now: Identity, required: Sequence[GateName]) -> tuple[Failure, ...]:
    """Why a pass does not hold now; empty when it does."""
    if given is None:
        return (failure("pass.none", now.host, "a pass", "none", f"invoke smoke --host {now.host}"),)
    step = f"invoke smoke --host {now.host}"
    out: list[Failure] = []
    if given.gate_version != GATE_VERSION:
        out.append(failure("pass.version", now.host, f"gates of version {GATE_VERSION}", given.gate_version, step))
    missing = [name for name in required if name not in given.gates]
    if missing:
        out.append(failure("pass.gates", now.host, "every required gate", f"without {', '.join(missing)}", step))
    for key in HELD:
        then, here = getattr(given.identity, key), getattr(now, key)
        if then is None or here is None or then != here:
            found = f"{here or 'could not be read'}: the pass is {MEANS[key]}"
            out.append(failure(f"pass.{key}", now.host, then or "a value", found, step))
    return tuple(out)
