"""What was built: one JSON document a build, found again by what went into it. Edge: files below the cache."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.image.model import Sha256
from kit.image.places import Places


class Built(BaseModel):
    """One finished image."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    profile: str
    image_id: Sha256
    builder: str
    builder_version: str
    reproducible: bool
    """Whether the builder promises the same id for the same input."""
    inputs_sha256: Sha256
    lock_sha256: Sha256
    base: str
    seconds: float
    manifest: dict[str, object]
    """What the checker inside wrote."""


def keep(places: Places, built: Built) -> Path:
    """Write it under what went in, and as the latest."""
    folder = places.built(built.profile)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{built.builder}-{built.inputs_sha256}.json"
    _write(path, built.model_dump_json(indent=1))
    _write(folder / "latest.json", built.model_dump_json(indent=1))
    return path


def for_a_run(document: Mapping[str, Any]) -> dict[str, Any]:
    """The same with Debian packages as a list: a record refuses what reads like ``passwd: VALUE``, and passwd is a package."""
    out: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, Mapping) and "passwd" in value:
            out[key] = [f"{name} {version}" for name, version in value.items()]
        else:
            out[key] = for_a_run(value) if isinstance(value, Mapping) else value
    return out


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text + "\n")
    fresh.replace(path)


def find(places: Places, profile: str, builder: str, inputs_sha256: str) -> Built | None:
    """A build of these very inputs by this builder."""
    return _read(places.built(profile) / f"{builder}-{inputs_sha256}.json")


def everything(places: Places) -> list[Built]:
    """All that were built and are still told, by profile and then as the files lie."""
    found = (_read(path) for path in sorted((places.cache / "built").glob("*/*-*.json")))
    return [built for built in found if built is not None]


def pick(places: Places, image: str) -> Built:
    """By profile (its latest) or by id, or the id's first digits. Raises KitError(USAGE, ``image.unknown``)."""
    latest = _read(places.built(image) / "latest.json") if image.replace("-", "").isalnum() else None
    if latest is not None:
        return latest
    digits = image.removeprefix("sha256:")
    known = {built.image_id: built for built in everything(places)}
    fits = [built for key, built in known.items() if len(digits) >= 8 and key.startswith(digits)]
    if len(fits) == 1:
        return fits[0]
    shown = ", ".join(f"{built.profile} ({key[:12]})" for key, built in known.items()) or "none was built here"
    step = "invoke build-image --profile NAME, or name one of these"
    raise KitError(failure("image.unknown", "--image", f"one of: {shown}", repr(image), step), ExitCode.USAGE)


def _read(path: Path) -> Built | None:
    try:
        return Built.model_validate_json(path.read_text())
    except (OSError, ValidationError):
        return None
