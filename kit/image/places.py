"""Where images are built and kept on the control machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kit.paths import cache_dir


@dataclass(frozen=True)
class Places:
    """Paths below one cache folder; each can be removed at any time, and is then made again."""

    cache: Path

    @classmethod
    def here(cls) -> Places:
        """Below ``kit.paths.cache_dir()``."""
        return cls(cache_dir() / "image")

    @property
    def wheels(self) -> Path:
        """Package files, fetched once, shared with kit.patch; every use checks the hash."""
        return self.cache.parent / "wheels"

    @property
    def bases(self) -> Path:
        """Debian trees as archives, named by their digest."""
        return self.cache / "bases"

    @property
    def sources(self) -> Path:
        """Plugin sources from git, by commit; patched trees."""
        return self.cache / "sources"

    def storage(self) -> tuple[Path, Path]:
        """(images and layers, what runs) of the builder: its own, so that a person's own images are never touched."""
        return self.cache / "storage", self.cache / "run"

    def built(self, image: str) -> Path:
        """One JSON document a build, the latest under ``latest.json``."""
        return self.cache / "built" / image

    def delivery(self, image_id: str) -> Path:
        """The image as a host takes it: parts and their sums."""
        return self.cache / "delivery" / image_id
