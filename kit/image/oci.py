"""An image as an OCI folder: a configuration whose hash is the image's id, and layers that it names by theirs. Reads files."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class OciImage:
    """What an exported image consists of."""

    image_id: str
    configuration: bytes
    layers: tuple[Path, ...]
    """Uncompressed tar archives, lowest first."""
    diff_ids: tuple[str, ...]
    """``sha256:`` of each layer, as the configuration names them."""


def read(folder: Path) -> OciImage:
    """The only image of an OCI folder."""
    index = json.loads((folder / "index.json").read_bytes())
    manifest = json.loads(_blob(folder, index["manifests"][0]["digest"]).read_bytes())
    raw = _blob(folder, manifest["config"]["digest"]).read_bytes()
    return OciImage(
        image_id=hashlib.sha256(raw).hexdigest(),
        configuration=raw,
        layers=tuple(_blob(folder, layer["digest"]) for layer in manifest["layers"]),
        diff_ids=tuple(json.loads(raw)["rootfs"]["diff_ids"]),
    )


def _blob(folder: Path, digest: str) -> Path:
    return folder / "blobs" / digest.replace(":", "/")
