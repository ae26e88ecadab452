"""Reads ``images/<name>/`` and writes its lock. Edge: files; decides nothing."""

from __future__ import annotations

import io
import os
import re
from pathlib import Path

from ruamel.yaml import YAML

from kit import paths
from kit.errors import ExitCode, Failure, KitError, failure
from kit.image.model import ImageLock, ImageSpec
from kit.patch.load import parse_model, read_text

_REQUIREMENT = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==([A-Za-z0-9][A-Za-z0-9.+!-]*)\Z")
_HEAD = (
    "# Written by `invoke image.lock --profile {name}`: what image.yml was resolved to.\n"
    "# null: nobody resolved it yet; it is never guessed.\n"
)


def images_dir() -> Path:
    """All images of this checkout."""
    return paths.ROOT / "images"


def folder_of(name: str) -> Path:
    """The folder of an image. Raises KitError(USAGE) naming those there are."""
    known = sorted(path.parent.name for path in images_dir().glob("*/image.yml"))
    if name not in known:
        expected = f"one of {', '.join(known)}"
        raise KitError(failure("image.profile", "--profile", expected, repr(name), "name one"), ExitCode.USAGE)
    return images_dir() / name


def load_spec(folder: Path) -> ImageSpec:
    """What the image is wanted to be. Raises KitError(USAGE) with every failure."""
    failures: list[Failure] = []
    path = folder / "image.yml"
    text = read_text(path, failures)
    spec = parse_model(ImageSpec, text, path, {}, failures) if not failures else None
    if spec is not None and spec.name != folder.name:
        failures.append(failure("image.name", f"{path} name", folder.name, spec.name, "an image is named like its folder"))
    if spec is None or failures:
        raise KitError(failures, ExitCode.USAGE)
    return spec


def load_lock(folder: Path) -> ImageLock:
    """What it was resolved to. Raises KitError(USAGE) with every failure; a lock that is absent is one."""
    failures: list[Failure] = []
    path = folder / "lock.yml"
    if not path.exists():
        found = f"no such file; run `invoke image.lock --profile {folder.name}`"
        raise KitError(failure("image.no_lock", str(path), "a lock", found, "lock it"), ExitCode.USAGE)
    lock = parse_model(ImageLock, read_text(path, failures), path, {}, failures)
    if lock is None or failures:
        raise KitError(failures, ExitCode.USAGE)
    return lock


def load_requirements(path: Path) -> dict[str, str]:
    """Normalized name -> exact version. Raises KitError(USAGE) with every line that is anything else."""
    failures: list[Failure] = []
    out: dict[str, str] = {}
    for number, line in enumerate(read_text(path, failures).splitlines(), 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        match = _REQUIREMENT.match(text)
        if match is None or match[1] in out:
            expected = "name==version, the name in lower case with hyphens, once"
            failures.append(failure("image.requirement", f"{path}:{number}", expected, repr(text), "correct the line"))
        else:
            out[match[1]] = match[2]
    if failures:
        raise KitError(failures, ExitCode.USAGE)
    return out


def lock_text(lock: ImageLock) -> str:
    """The lock as it stands in its file."""
    stream = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.width = 4096
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    yaml.dump(lock.model_dump(mode="json", by_alias=True), stream)
    return _HEAD.format(name=lock.image) + stream.getvalue()


def write_lock(folder: Path, lock: ImageLock) -> None:
    """In one step."""
    fresh = folder / f".lock.yml.{os.getpid()}"
    fresh.write_text(lock_text(lock))
    fresh.replace(folder / "lock.yml")
