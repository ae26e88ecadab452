"""What a builder must do, and which there are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from kit.errors import ExitCode, KitError, failure
from kit.image.buildah import Buildah
from kit.image.context import Context
from kit.image.model import ImageLock, ImageSpec
from kit.image.places import Places


class Builder(Protocol):
    """Builds images and lets them be looked into."""

    name: str
    reproducible: bool

    def version(self) -> str:
        """For the record."""
        ...

    def has(self, image: str) -> bool:
        """Whether it has this image, whole."""
        ...

    def leftovers(self) -> None:
        """Remove what a killed build left."""
        ...

    def build(self, context: Context, spec: ImageSpec, lock: ImageLock, archive: Path | None, cache: bool = True) -> str:
        """The id of the finished image."""
        ...

    def read(self, image: str, path: str) -> bytes:
        """A file of an image."""
        ...

    def run_inside(self, image: str, command: list[str]) -> tuple[str, str]:
        """(standard output, standard error) of a command in an image, without network."""
        ...

    def configuration(self, image: str) -> bytes:
        """The image's configuration document, whose hash is its id."""
        ...

    def layers(self, image: str) -> AbstractContextManager[Path]:
        """A folder of the image's uncompressed layers, each under its hash in hex; gone afterwards."""
        ...


def _docker(places: Places) -> Builder:
    from kit.image.docker import Docker

    return Docker(places)


_KNOWN: dict[str, Callable[[Places], Builder]] = {"buildah": Buildah, "docker": _docker}


def builder_for(name: str, places: Places) -> Builder:
    """By name. Raises KitError(USAGE)."""
    if name not in _KNOWN:
        expected = " or ".join(_KNOWN)
        raise KitError(failure("image.builder", "--builder", expected, repr(name), "use one of these"), ExitCode.USAGE)
    return _KNOWN[name](places)
