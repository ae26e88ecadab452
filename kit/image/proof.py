"""What the checker inside said, what it says when it looks again, and how both compare with the lock."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kit.errors import Failure, failure
from kit.image import inside
from kit.image.builders import Builder
from kit.image.commands import Failed
from kit.image.model import ImageLock, ImageSpec
from kit.image.record import Built
from kit.image.render import lock_sha256

MARK = "b300kit-failure:"
SHARE = "/usr/share/b300kit"
MANIFEST = f"{SHARE}/manifest.json"


def inside_failures(text: str) -> list[Failure]:
    """The checker's own failures in a builder's output. Pure."""
    out: list[Failure] = []
    for line in text.splitlines():
        _, mark, document = line.partition(MARK)
        if mark:
            try:
                out.append(Failure.model_validate_json(document))
            except ValidationError:
                continue
    return list(dict.fromkeys(out))


def manifest_of(builder: Builder, image: str) -> dict[str, Any]:
    """The manifest that the build wrote into the image."""
    return dict(json.loads(builder.read(image, MANIFEST)))


def look_again(builder: Builder, image: str, spec: ImageSpec) -> tuple[dict[str, Any] | None, list[Failure]]:
    """Run this checkout's checker (never the image's own) in the image: the manifest, and what is not as it should be."""
    source = (Path(inside.__file__).parent / "checker.py").read_text()
    try:
        out, _ = builder.run_inside(image, [f"{spec.prefix}/bin/python", "-I", "-c", source, "verify"])
    except Failed as error:
        found = inside_failures(error.err)
        if not found:
            return None, list(error.failures)
        return None, found
    return dict(json.loads(out)), []


def compare(built: Built, lock: ImageLock, expected: dict[str, Any], inside_expected: dict[str, Any]) -> list[Failure]:
    """The record, the lock as it is now, and what the image was told to expect. Pure."""
    out: list[Failure] = []
    wanted = lock_sha256(lock)
    for name, found in (("the record", built.lock_sha256), ("the manifest", built.manifest.get("lock_sha256"))):
        if found != wanted:
            step = f"invoke build-image --profile {built.profile}"
            out.append(failure("image.lock_moved", f"{built.image_id[:12]}: lock of {name}", wanted, found, step))
    for key in sorted({*expected, *inside_expected}):
        if expected.get(key) != inside_expected.get(key):
            where = f"{built.image_id[:12]}: expected.json {key}"
            out.append(
                failure("image.expected", where, _short(expected.get(key)), _short(inside_expected.get(key)), "build again")
            )
    return out


def _short(value: object) -> str:
    text = json.dumps(value, sort_keys=True)
    return text if len(text) <= 200 else f"{text[:197]}..."
