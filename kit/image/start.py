"""Proof that a delivered image starts on its host: its signature, its own checker, its entry point. Edge: runs commands there."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

from kit.errors import ExitCode, KitError, failure
from kit.image import sign
from kit.image.delivery import Delivery
from kit.image.proof import SHARE, inside_failures
from kit.work import Work, remote

log = logging.getLogger("kit.image")

_START_S = 900.0
VERIFY = """
cd "$1"
ssh-keygen -Y verify -f allowed_signers -I "$2" -n "$3" -s statement.json.sig <statement.json
test "$(sha256sum <image.json)" = "$(basename "$1")  -"
grep -q "\\"image_id\\": \\"$(basename "$1")\\"" statement.json
test -d rootfs || exit 0
manifest=$(sha256sum <rootfs/usr/share/b300kit/manifest.json | cut -c1-64)
grep -q "\\"manifest_sha256\\": \\"$manifest\\"" statement.json
"""
"""Arguments: the image's folder, who signed, the namespace. Signature, id and manifest; exits 0 when all three hold."""


def config(image: Delivery) -> dict[str, Any]:
    """What the image says about how it is run."""
    return dict(json.loads(image.configuration)["config"])


def starts(one: Work, image: Delivery, images: str) -> dict[str, float]:
    """Run the image's own checker and its entry point's ``--help`` as the engine's user in the new root; seconds each.

    Raises KitError(GATE_FAILED) with what it said. The checker is the image's: its bytes are part of the id.
    """
    told = config(image)
    python = told["Entrypoint"][0]
    out = {"signature": _signature(one, image, images)} if one.result["signed_by"] else {}
    commands = {
        "verify": [python, "-I", f"{SHARE}/checker.py", "verify"],
        "help": [*told["Entrypoint"], "--help"],
    }
    for name, command in commands.items():
        log.info("%s: starting %s in the new image", one.name, name)
        if image.runtime == "docker":
            words = in_container(image.image_id, command)
        else:
            words = in_root(f"{images}/{image.image_id}/rootfs", image.user, told.get("Env", []), command)
        host = remote(one.target)
        done = host.run(host.privileged(words), timeout_s=_START_S)
        if done.status != 0:
            said = inside_failures(done.stderr)
            text = (done.stderr.strip() or done.stdout.decode(errors="replace").strip())[-600:]
            why = failure("image.does_not_start", f"{one.name}: {name}", "exit 0", f"exit {done.status}: {text}", "see the host")
            raise KitError(said or why, ExitCode.GATE_FAILED)
        out[name] = round(done.seconds, 1)
    return out


def _signature(one: Work, image: Delivery, images: str) -> float:
    """The host verifies by itself, offline, what a unit can verify before each start."""
    words = ["sh", "-ec", VERIFY, "b300kit", f"{images}/{image.image_id}", one.result["signed_by"], sign.NAMESPACE]
    host = remote(one.target)
    done = host.run(host.privileged(words))
    if done.status != 0:
        found = f"exit {done.status}: {(done.stderr or done.stdout.decode(errors='replace')).strip()[-300:]}"
        raise KitError(
            failure("image.signature", f"{one.name}: {image.image_id[:12]}", "a signature that holds", found, "see the host"),
            ExitCode.GATE_FAILED,
        )
    return round(done.seconds, 1)


def in_root(root: str, user: str, environment: Sequence[str], command: Sequence[str]) -> list[str]:
    """systemd-run for a command in an image: its user, its variables, nothing writable but a /tmp of its own. Pure."""
    properties = {
        "RootDirectory": root,
        "User": user,
        "MountAPIVFS": "yes",
        "PrivateTmp": "yes",
        "PrivateNetwork": "yes",
        "ProtectSystem": "strict",
        "NoNewPrivileges": "yes",
    }
    words = ["systemd-run", "--wait", "--pipe", "--collect", "--quiet", "--service-type=exec"]
    words += [f"--property={name}={value}" for name, value in properties.items()]
    return [*words, *(f"--setenv={pair}" for pair in environment), "--", *command]


def in_container(image: str, command: Sequence[str]) -> list[str]:
    """docker run for a command in an image, without network, nothing of it writable but a /tmp of its own. Pure."""
    words = ["docker", "run", "--rm", "--network", "none", "--read-only", "--tmpfs", "/tmp"]  # noqa: S108 - in the container
    return [*words, "--entrypoint", command[0], image, *command[1:]]
