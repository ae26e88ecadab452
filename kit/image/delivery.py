"""An image as a host takes it: each layer compressed, in parts that can be sent one by one; made once, kept by content.

``layers/<diff id>/`` holds ``index.json`` and the parts. A layer that two images share is there once, here and on a host.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.image import oci
from kit.image.builders import Builder
from kit.image.commands import log
from kit.image.model import ImageSpec, Sha256
from kit.image.places import Places
from kit.image.space import need_space

PART_BYTES = 64 * 1024 * 1024
"""Small enough that a cut line costs seconds, large enough that hundreds of parts do not cost minutes."""
_LEVEL = 1
"""The compressor must keep up with a line of 1 Gbit/s on one core; level 6 saves a tenth and takes three times as long."""
INDEX = "index.json"


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Part(_Frozen):
    """A piece of a compressed layer."""

    name: Annotated[str, StringConstraints(pattern=r"^[0-9]{4}$")]
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
    runtime: Literal["docker", "rootdir"]
    user: str
    """Whose numbers the image's files have, and who the engine runs as; a host must know the name."""
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


def prepare(places: Places, builder: Builder, spec: ImageSpec, image_id: str) -> Delivery:
    """From the cache when it is there, else packed now; layers that were packed for another image are not packed again.

    Raises as the builder does, and KitError(APPLY_FAILED) for no space or bytes that are not what the configuration names.
    """
    known = load(places, image_id)
    if known is not None:
        return known
    configuration = builder.configuration(image_id)
    if hashlib.sha256(configuration).hexdigest() != image_id:
        raise _wrong("the image's configuration", image_id, hashlib.sha256(configuration).hexdigest())
    names = [name.removeprefix("sha256:") for name in json.loads(configuration)["rootfs"]["diff_ids"]]
    folder = layers_folder(places)
    layers = {name: _packed(folder, name) for name in names}
    if None in layers.values():
        log.info("packing the image for delivery")
        need_space(places.cache, 8_000_000_000)
        with builder.layers(image_id) as tars:
            layers = {name: layer or _pack(folder, name, tars / name) for name, layer in layers.items()}
    whole = tuple(layer for layer in layers.values() if layer is not None)
    made = Delivery(
        image_id=image_id,
        profile=spec.name,
        runtime=spec.runtime,
        user=spec.user,
        configuration=configuration.decode(),
        layers=whole,
    )
    keep(places, made)
    return made


def _wrong(where: str, expected: str, found: str) -> KitError:
    step = "remove the builder's storage, and build again"
    return KitError(failure("image.layer", where, expected, found, step), ExitCode.APPLY_FAILED)


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


def _packed(folder: Path, diff_id: str) -> Layer | None:
    """A layer that was packed before, and is whole."""
    try:
        known = Layer.model_validate_json((folder / diff_id / INDEX).read_text())
    except (OSError, ValidationError):
        return None
    return known if _whole(folder, known) else None


def _pack(folder: Path, diff_id: str, tar: Path) -> Layer:
    """Compress a layer into parts, in one reading. Raises KitError when its bytes are not what the configuration names."""
    folder.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=".layer-", dir=folder))
    try:
        squeezed = _Parts(fresh)
        with tar.open("rb") as file:
            facts = oci.look(file, squeezed)
        if facts.diff_id != diff_id:
            raise _wrong(f"layer {tar.name[:12]}", diff_id, facts.diff_id)
        layer = Layer(diff_id=diff_id, bytes=facts.bytes, parts=squeezed.end(), whiteouts=facts.whiteouts)
        (fresh / INDEX).write_text(layer.model_dump_json())
        if (folder / diff_id).exists():
            shutil.rmtree(folder / diff_id)
        fresh.rename(folder / diff_id)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    return layer


class _Parts(oci.Listener):
    """Compresses what it takes, and writes it in parts of equal size. Same bytes, same parts."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, 31)
        self._waiting = bytearray()
        self._parts: list[Part] = []

    def take(self, data: bytes) -> None:
        """The next piece."""
        self._add(self._squeeze.compress(data))

    def end(self) -> tuple[Part, ...]:
        """What is left, and all parts."""
        self._add(self._squeeze.flush())
        self._write(bytes(self._waiting))
        return tuple(self._parts)

    def _add(self, data: bytes) -> None:
        self._waiting += data
        while len(self._waiting) > PART_BYTES:
            self._write(bytes(self._waiting[:PART_BYTES]))
            del self._waiting[:PART_BYTES]

    def _write(self, data: bytes) -> None:
        name = f"{len(self._parts):04d}"
        (self._folder / name).write_bytes(data)
        self._parts.append(Part(name=name, bytes=len(data), sha256=hashlib.sha256(data).hexdigest()))
