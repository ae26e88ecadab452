"""An image as an OCI folder: a configuration whose hash is the image's id, and layers that it names by theirs. Reads files."""

from __future__ import annotations

import gzip
import hashlib
import json
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class OciImage:
    """What an exported image consists of."""

    image_id: str
    configuration: bytes
    layers: tuple[Path, ...]
    """Archives compressed with gzip, lowest first."""
    diff_ids: tuple[str, ...]
    """Hash in hex of each uncompressed layer, as the configuration names them."""


@dataclass(frozen=True)
class LayerFacts:
    """What a compressed layer holds."""

    diff_id: str
    bytes: int
    """Uncompressed."""
    whiteouts: tuple[str, ...]
    """What it removes from those below: paths, a folder's whole content as ``path/*``."""


def read(folder: Path, tag: str) -> OciImage:
    """One image of an OCI folder."""
    index = json.loads((folder / "index.json").read_bytes())
    named = [m for m in index["manifests"] if m.get("annotations", {}).get("org.opencontainers.image.ref.name") == tag]
    manifest: dict[str, Any] = json.loads(_blob(folder, named[0]["digest"]).read_bytes())
    raw = _blob(folder, manifest["config"]["digest"]).read_bytes()
    return OciImage(
        image_id=hashlib.sha256(raw).hexdigest(),
        configuration=raw,
        layers=tuple(_blob(folder, layer["digest"]) for layer in manifest["layers"]),
        diff_ids=tuple(name.removeprefix("sha256:") for name in json.loads(raw)["rootfs"]["diff_ids"]),
    )


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")


class _Seen:
    """A stream that remembers the hash and the number of what was read from it."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self.hash = hashlib.sha256()
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        """As the stream's own."""
        data = self._stream.read(size)
        self.hash.update(data)
        self.bytes += len(data)
        return data


def look(layer: Path) -> LayerFacts:
    """Read a layer once. Raises OSError or tarfile.TarError for one that is broken."""
    with gzip.open(layer, "rb") as stream:
        seen = _Seen(stream)  # type: ignore[arg-type]
        with tarfile.open(fileobj=seen, mode="r|", bufsize=_CHUNK) as archive:  # type: ignore[call-overload]
            hidden = tuple(name for member in archive if (name := whiteout(member.name)) is not None)
        while seen.read(_CHUNK):
            continue
    return LayerFacts(diff_id=seen.hash.hexdigest(), bytes=seen.bytes, whiteouts=hidden)


def whiteout(name: str) -> str | None:
    """What a member of a layer hides in those below, or None for an ordinary file. Pure."""
    folder, _, last = name.removeprefix("./").rpartition("/")
    place = f"{folder}/" if folder else ""
    if last == ".wh..wh..opq":
        return f"{place}*"
    return f"{place}{last.removeprefix('.wh.')}" if last.startswith(".wh.") else None
