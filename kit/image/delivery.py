"""An image as a host takes it: each layer compressed, in parts that can be sent one by one; made once, kept by content.

``layers/<diff id>/`` holds ``index.json`` and the parts. A layer that two images share is there once, here and on a host.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.image import oci
from kit.image.builders import Builder
from kit.image.commands import log
from kit.image.model import Sha256
from kit.image.places import Places
from kit.image.space import need_space

PART_BYTES = 64 * 1024 * 1024
"""Small enough that a cut line costs seconds, large enough that hundreds of parts do not cost minutes."""
INDEX = "index.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Frozen):
    """A piece of a compressed layer."""

    name: str
    bytes: int
    sha256: Sha256


class Layer(_Frozen):
    """One layer, compressed."""

    diff_id: Sha256
    """Of the uncompressed archive, as the image's configuration names it."""
    bytes: int
    """Uncompressed."""
    parts: tuple[Part, ...]
    whiteouts: tuple[str, ...]
    """What this layer removes from those below: paths, a folder's whole content as ``path/*``."""


class Delivery(_Frozen):
    """All that a host needs of one image. The configuration names each layer by its hash; its own hash is the image's id."""

    image_id: Sha256
    profile: str
    configuration: str
    layers: tuple[Layer, ...]

    @property
    def unpacked_bytes(self) -> int:
        """What it takes on a host's disk."""
        return sum(layer.bytes for layer in self.layers)

    @property
    def sent_bytes(self) -> int:
        """What goes over the line when a host has nothing of it."""
        return sum(part.bytes for layer in self.layers for part in layer.parts)


def layers_folder(places: Places) -> Path:
    """Of all images."""
    return places.cache / "delivery" / "layers"


def prepare(places: Places, builder: Builder, profile: str, image_id: str) -> Delivery:
    """From the cache when it is there, else exported and compressed now. Raises as the builder does, and for no space."""
    known = load(places, image_id)
    if known is not None:
        return known
    log.info("packing the image for delivery")
    need_space(places.cache, 8_000_000_000)
    image = oci.read(builder.export(image_id), image_id)
    layers = tuple(
        _layer(layers_folder(places), diff_id, blob) for diff_id, blob in zip(image.diff_ids, image.layers, strict=True)
    )
    made = Delivery(image_id=image.image_id, profile=profile, configuration=image.configuration.decode(), layers=layers)
    keep(places, made)
    return made


def keep(places: Places, delivery: Delivery) -> None:
    """Remember it by its id, in one step."""
    path = places.delivery(delivery.image_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(delivery.model_dump_json(indent=1))
    fresh.replace(path)


def load(places: Places, image_id: str) -> Delivery | None:
    """One that was prepared and whose parts are all there, by size; None otherwise."""
    try:
        found = Delivery.model_validate_json(places.delivery(image_id).read_text())
    except (OSError, ValidationError):
        return None
    return found if all(_whole(layers_folder(places), layer) for layer in found.layers) else None


def _whole(folder: Path, layer: Layer) -> bool:
    return all(_size(folder / layer.diff_id / part.name) == part.bytes for part in layer.parts)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _layer(folder: Path, diff_id: str, blob: Path) -> Layer:
    """Split one layer, unless it is there already. Raises KitError when its bytes are not what the configuration names."""
    target = folder / diff_id
    try:
        known = Layer.model_validate_json((target / INDEX).read_text())
        if _whole(folder, known):
            return known
    except (OSError, ValidationError):
        pass
    facts = oci.look(blob)
    if facts.diff_id != diff_id:
        where, step = f"layer {blob.name[:12]}", "remove the builder's storage, and build again"
        raise KitError(failure("image.layer", where, diff_id, facts.diff_id, step), ExitCode.APPLY_FAILED)
    folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".layer-", dir=folder))
    try:
        layer = Layer(diff_id=diff_id, bytes=facts.bytes, parts=tuple(_parts(fresh, blob)), whiteouts=facts.whiteouts)
        (fresh / INDEX).write_text(layer.model_dump_json())
        if target.exists():
            shutil.rmtree(target)
        fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return layer


def _parts(folder: Path, blob: Path) -> Iterator[Part]:
    with blob.open("rb") as file:
        for number, data in enumerate(iter(lambda: file.read(PART_BYTES), b"")):
            yield _part(folder, number, data)


def _part(folder: Path, number: int, data: bytes) -> Part:
    name = f"{number:04d}"
    (folder / name).write_bytes(data)
    return Part(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
