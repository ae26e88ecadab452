"""Says what an image is in a few lines, signed with an SSH key; verified anywhere with `ssh-keygen`, no network. Edge: files."""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from kit.errors import ExitCode, KitError, failure
from kit.image.commands import Failed, run, run_both
from kit.image.load import folder_of, load_lock, load_spec
from kit.image.places import Places
from kit.image.record import Built, pick
from kit.image.sbom import bill
from kit.outcome import Outcome

TASK = "image.sign"
NAMESPACE = "b300kit-image"
"""Of the signature: one made for anything else with the same key does not count."""
STATEMENT, SIGNATURE, MANIFEST, SBOM = "statement.json", "statement.json.sig", "manifest.json", "sbom.cdx.json"


def documents(built: Built) -> dict[str, bytes]:
    """Manifest, bill of materials, and the statement that names both by hash. The same image gives the same bytes."""
    folder = folder_of(built.profile)
    manifest = (json.dumps(built.manifest, indent=1, sort_keys=True) + "\n").encode()
    sbom = bill(built, load_spec(folder), load_lock(folder)).encode()
    statement = {
        "schema_version": 1,
        "image_id": built.image_id,
        "profile": built.profile,
        "builder": built.builder,
        "lock_sha256": built.lock_sha256,
        "manifest_sha256": hashlib.sha256(manifest).hexdigest(),
        "sbom_sha256": hashlib.sha256(sbom).hexdigest(),
    }
    return {
        MANIFEST: manifest,
        SBOM: sbom,
        STATEMENT: (json.dumps(statement, indent=1, sort_keys=True) + "\n").encode(),
    }


def folder(places: Places, image_id: str) -> Path:
    """Where an image's documents and signature are kept."""
    return places.cache / "documents" / image_id


def keep_documents(places: Places, built: Built) -> Path:
    """Write them; a signature over another statement is removed."""
    place = folder(places, built.image_id)
    place.mkdir(parents=True, exist_ok=True)
    fresh = documents(built)
    if (place / STATEMENT).is_file() and (place / STATEMENT).read_bytes() != fresh[STATEMENT]:
        (place / SIGNATURE).unlink(missing_ok=True)
    for name, data in fresh.items():
        (place / name).write_bytes(data)
    return place


def read_documents(places: Places, image_id: str) -> dict[str, bytes]:
    """All that are kept, the signature too when there is one."""
    place = folder(places, image_id)
    return {name: (place / name).read_bytes() for name in (MANIFEST, SBOM, STATEMENT, SIGNATURE) if (place / name).is_file()}


def sign(image: str, key: str) -> Outcome:
    """Sign an image's statement. The key stays in its file or in the ssh agent; a passphrase is never asked for here."""
    places = Places.here()
    built = pick(places, image)
    place = keep_documents(places, built)
    (place / SIGNATURE).unlink(missing_ok=True)
    try:
        run(["ssh-keygen", "-Y", "sign", "-f", str(Path(key).expanduser()), "-n", NAMESPACE, place / STATEMENT], "image.sign", 60)
    except Failed as error:
        found, step = error.failures[0].found, "name a private key file, or its .pub with the key in the ssh agent"
        raise KitError(failure("image.sign", key, "a key that signs", found, step), ExitCode.USAGE) from error
    result = {"image_id": built.image_id, "profile": built.profile, "documents": str(place), "signature": str(place / SIGNATURE)}
    return Outcome(TASK, result=result, text=f"{built.profile} {built.image_id[:12]}: signed, {place / SIGNATURE}")


def check(files: dict[str, bytes], image_id: str, allowed_signers: Path) -> str:
    """The name of who signed an image's documents. Raises KitError(REFUSED, ``image.signature``) with the reason."""
    where = f"image {image_id[:12]}"

    def refuse(expected: str, found: str, step: str) -> KitError:
        return KitError(failure("image.signature", where, expected, found, step), ExitCode.REFUSED)

    if SIGNATURE not in files or STATEMENT not in files:
        raise refuse(
            f"signed by one of {allowed_signers}", "no signature", f"invoke image.sign --image {image_id[:12]} --key KEY"
        )
    with tempfile.TemporaryDirectory() as scratch:
        signature = Path(scratch) / SIGNATURE
        signature.write_bytes(files[SIGNATURE])
        words = ["ssh-keygen", "-Y", "find-principals", "-f", str(allowed_signers), "-s", str(signature)]
        try:
            who = run(words, "image.signature", 60).split()[0]
            verify = ["ssh-keygen", "-Y", "verify", "-f", str(allowed_signers), "-I", who]
            verify += ["-n", NAMESPACE, "-s", str(signature)]
            run_both(verify, "image.signature", 60, stdin=files[STATEMENT])
        except Failed as error:
            raise refuse(f"signed by one of {allowed_signers}", error.failures[0].found, "do not trust it") from error
    told: dict[str, Any] = json.loads(files[STATEMENT])
    hashes = {"image_id": image_id, **{f"{key}_sha256": _sha256(files.get(name)) for key, name in _NAMED}}
    for name, found in hashes.items():
        if told.get(name) != found:
            raise refuse(f"{name} {told.get(name)}, as signed", str(found), "do not trust it")
    return who


def admits(signers: str) -> bool:
    """Whether an ``allowed_signers`` file lets anybody sign images: a line without ``namespaces=``, or with ours. Pure."""
    for line in signers.splitlines():
        words = line.split("#")[0].strip()
        if words:
            limited = _NAMESPACES.search(words)
            if limited is None or any(fnmatch(NAMESPACE, pattern) for pattern in limited[1].split(",")):
                return True
    return False


_NAMESPACES = re.compile(r'(?i)\bnamespaces="([^"]*)"')
_NAMED = (("manifest", MANIFEST), ("sbom", SBOM))


def _sha256(data: bytes | None) -> str:
    return hashlib.sha256(data).hexdigest() if data is not None else "absent"
