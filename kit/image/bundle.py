"""One archive with all that a delivery needs, for places without a network: parts, configuration, documents, signature."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

from pydantic import ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.image import delivery, sign
from kit.image.delivery import Delivery, Layer, layers_folder
from kit.image.places import Places
from kit.outcome import Outcome

TASK = "image.bundle"
_HEAD = "delivery.json"
_CHUNK = 1024 * 1024


def write(places: Places, wanted: Delivery, out: Path) -> Outcome:
    """Write the archive, in one step. The same image gives the same bytes."""
    documents = sign.read_documents(places, wanted.image_id)
    fresh = out.with_name(f".{out.name}.{os.getpid()}")
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fresh, "w") as archive:
            _add(archive, _HEAD, wanted.model_dump_json(indent=1).encode())
            for name, data in documents.items():
                _add(archive, f"documents/{name}", data)
            for layer in dict.fromkeys(wanted.layers):
                for part in layer.parts:
                    _add_file(archive, f"parts/{layer.diff_id}/{part.name}", layers_folder(places) / layer.diff_id / part.name)
        fresh.replace(out)
    except OSError as error:
        told = failure("image.bundle", str(out), "a place to write to", error.strerror or str(error), "free space or rights")
        raise KitError(told, ExitCode.APPLY_FAILED) from error
    finally:
        fresh.unlink(missing_ok=True)
    signed = sign.SIGNATURE in documents
    size = out.stat().st_size
    text = f"{out}: {wanted.profile} {wanted.image_id[:12]}, {size / 1e6:.0f} MB, {'signed' if signed else 'not signed'}"
    result = {"bundle": str(out), "image_id": wanted.image_id, "profile": wanted.profile, "bytes": size, "signed": signed}
    return Outcome(TASK, result=result, text=text)


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(data), 0o644
    archive.addfile(member, io.BytesIO(data))


def _add_file(archive: tarfile.TarFile, name: str, path: Path) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = path.stat().st_size, 0o644
    with path.open("rb") as file:
        archive.addfile(member, file)


def read(places: Places, bundle: Path) -> Delivery:
    """Take a bundle's parts and documents into the cache, each by its hash; asks no network and runs nothing of it.

    Raises KitError(USAGE) for what is no bundle, and KitError(REFUSED, ``image.bundle_tampered``) naming what differs.
    """
    try:
        with tarfile.open(bundle) as archive:
            head = archive.extractfile(_HEAD)
            assert head is not None
            wanted = Delivery.model_validate_json(head.read())
            _check_id(bundle, wanted)
            for layer in dict.fromkeys(wanted.layers):
                _take_layer(places, bundle, archive, layer)
            _take_documents(places, archive, wanted)
    except (OSError, KeyError, AssertionError, ValidationError, tarfile.TarError) as error:
        found = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        told = failure("image.bundle", str(bundle), "an archive of invoke image.bundle", found, "name another file")
        raise KitError(told, ExitCode.USAGE) from error
    delivery.keep(places, wanted)
    return wanted


def _check_id(bundle: Path, wanted: Delivery) -> None:
    found = hashlib.sha256(wanted.configuration.encode()).hexdigest()
    named = [name.removeprefix("sha256:") for name in json.loads(wanted.configuration)["rootfs"]["diff_ids"]]
    if found != wanted.image_id or named != [layer.diff_id for layer in wanted.layers]:
        raise _tampered(bundle, "the configuration", wanted.image_id, found)


def _take_layer(places: Places, bundle: Path, archive: tarfile.TarFile, layer: Layer) -> None:
    folder = layers_folder(places) / layer.diff_id
    folder.mkdir(parents=True, exist_ok=True)
    for part in layer.parts:
        source = archive.extractfile(f"parts/{layer.diff_id}/{Path(part.name).name}")
        assert source is not None
        whole = hashlib.sha256()
        fresh = folder / f".{part.name}.{os.getpid()}"
        try:
            with fresh.open("wb") as target:
                while data := source.read(_CHUNK):
                    whole.update(data)
                    target.write(data)
            if whole.hexdigest() != part.sha256:
                raise _tampered(bundle, f"layer {layer.diff_id[:12]} part {part.name}", part.sha256, whole.hexdigest())
            fresh.replace(folder / Path(part.name).name)
        finally:
            fresh.unlink(missing_ok=True)
    (folder / delivery.INDEX).write_text(layer.model_dump_json())


def _take_documents(places: Places, archive: tarfile.TarFile, wanted: Delivery) -> None:
    place = sign.folder(places, wanted.image_id)
    place.mkdir(parents=True, exist_ok=True)
    for name in (sign.MANIFEST, sign.SBOM, sign.STATEMENT, sign.SIGNATURE):
        if f"documents/{name}" in archive.getnames():
            source = archive.extractfile(f"documents/{name}")
            assert source is not None
            (place / name).write_bytes(source.read())


def _tampered(bundle: Path, what: str, expected: str, found: str) -> KitError:
    told = failure("image.bundle_tampered", f"{bundle}: {what}", expected, found, "do not trust it: make the bundle again")
    return KitError(told, ExitCode.REFUSED)
