"""What a layer of an image holds, read once while it goes by. No effect beyond reading the stream it is given."""

from __future__ import annotations

import hashlib
import tarfile
from dataclasses import dataclass
from typing import BinaryIO

_CHUNK = 1024 * 1024


@dataclass(frozen=True)
class LayerFacts:
    """What an uncompressed layer holds."""

    diff_id: str
    """Its hash in hex, as an image's configuration names it."""
    bytes: int
    whiteouts: tuple[str, ...]
    """What it removes from the layers below: paths, a folder's whole content as ``path/*``."""


class Seen:
    """A stream that remembers hash and size of what was read from it, and gives each piece to a listener."""

    def __init__(self, stream: BinaryIO, listener: Listener) -> None:
        self._stream = stream
        self._listener = listener
        self.hash = hashlib.sha256()
        self.bytes = 0

    def read(self, size: int = -1) -> bytes:
        """As the stream's own."""
        data = self._stream.read(size)
        self.hash.update(data)
        self.bytes += len(data)
        self._listener.take(data)
        return data


class Listener:
    """Takes each piece of a stream; does nothing with it."""

    def take(self, data: bytes) -> None:
        """The next piece."""


def look(layer: BinaryIO, listener: Listener) -> LayerFacts:
    """Read a layer once. Raises tarfile.TarError for one that is broken."""
    seen = Seen(layer, listener)
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
