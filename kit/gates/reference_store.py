"""References on disk, signed with the operator's own SSH key. Edge: files, ``ssh-keygen -Y``.

``fleet/reference_signers`` (allowed signers of ssh-keygen(1)) says whose signature counts; one without
a good signature is none.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.gates.reference import NAMESPACE, Reference
from kit.record import files
from kit.spec.load import shown

FOLDER = "references"
SIGNERS = "reference_signers"
PRINCIPAL = "b300kit"


def path_of(fleet: Path, numerics: str) -> Path:
    """Where the reference of a class lies."""
    return fleet / FOLDER / f"{numerics}.json"


def find(fleets: Sequence[Path], numerics: str) -> Reference | None:
    """The first fleet folder's that has one; see :func:`load`."""
    return next((load(fleet, numerics) for fleet in fleets if path_of(fleet, numerics).exists()), None)


def load(fleet: Path, numerics: str) -> Reference | None:
    """The reference, its signature checked; None when there is none.

    Raises KitError(GATE_FAILED): ``reference.signature``, ``reference.broken``.
    """
    path = path_of(fleet, numerics)
    if not path.exists():
        return None
    content = path.read_bytes()
    _verify(fleet, path, content)
    try:
        reference = Reference.model_validate_json(content)
    except ValidationError as error:
        found = str(error.errors(include_url=False)[0]["msg"])
        raise KitError(
            failure("reference.broken", shown(path), "a reference", found, "restore it"), ExitCode.GATE_FAILED
        ) from None
    if reference.numerics != numerics:
        found = reference.numerics
        raise KitError(failure("reference.broken", shown(path), numerics, found, "restore it"), ExitCode.GATE_FAILED)
    return reference


def _verify(fleet: Path, path: Path, content: bytes) -> None:
    signers, signature = fleet / SIGNERS, path.with_name(f"{path.name}.sig")
    argv = ["ssh-keygen", "-Y", "verify", "-f", str(signers), "-I", PRINCIPAL, "-n", NAMESPACE, "-s", str(signature)]
    done = subprocess.run(argv, input=content, capture_output=True, timeout=30, check=False)
    if done.returncode != 0:
        said = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines()
        found = said[-1] if said else "no good signature"
        step = f'record it again, or add its signer to {shown(signers)} as `{PRINCIPAL} namespaces="{NAMESPACE}" KEY`'
        raise KitError(failure("reference.signature", shown(path), "a good signature", found, step), ExitCode.GATE_FAILED)


def store(fleet: Path, reference: Reference, key: Path) -> Path:
    """Write and sign. The old one stays beside it, named by its hash. Raises KitError(USAGE) when the key cannot sign."""
    path = path_of(fleet, reference.numerics)
    files.make_directory(path.parent)
    fresh = path.with_name(f".{path.name}.new")
    files.write_atomic(fresh, reference.text().encode())
    argv = ["ssh-keygen", "-q", "-Y", "sign", "-f", str(key), "-n", NAMESPACE, str(fresh)]
    signature = fresh.with_name(f"{fresh.name}.sig")
    signature.unlink(missing_ok=True)
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    if done.returncode != 0:
        fresh.unlink()
        said = done.stderr.decode(errors="replace").strip().splitlines()
        found = said[-1] if said else f"status {done.returncode}"
        step = "give a private key that ssh-keygen can use without a question, or load it into the agent"
        raise KitError(failure("reference.key", shown(key), "a signature", found, step), ExitCode.USAGE)
    if path.exists():
        old = files.file_sha256(path)
        for suffix in ("", ".sig"):
            before = path.with_name(f"{path.name}{suffix}")
            if before.exists():
                before.rename(path.with_name(f"{reference.numerics}.{old[:12]}.json{suffix}"))
    # Signature first: a reference without one is refused, a signature without its reference is nothing.
    signature.rename(path.with_name(f"{path.name}.sig"))
    fresh.rename(path)
    return path
