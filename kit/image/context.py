"""The folder that a builder is given: every file of it locked, hashed or rendered. Same lock, same bytes.

Dockerfile, requirements.txt, install.py; ``system/`` (first step), ``wheels/`` and ``tools/`` (package files), ``own/`` (the
patched plugin, stand-ins, kernels), ``proof/`` (checker, expectations, lock, patch receipt).
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

from kit.errors import ExitCode, KitError, failure
from kit.image import inside, render, sources, wheels
from kit.image.base import sha256_file
from kit.image.load import images_dir, lock_text
from kit.image.model import DebianBase, ImageLock, ImageSpec
from kit.image.places import Places
from kit.patch.check import RECEIPT
from kit.patch.load import load_series
from kit.patch.report import PatchReport
from kit.slots.compose import compose
from kit.slots.load import load_declared
from kit.slots.model import Composed, Refused, Route, Slots

TEMPLATE = "engine.Dockerfile.j2"
BASE_TAG = "{base}"
"""Stands for the imported base in the Dockerfile whose hash is the build's key: import ids differ between builders."""
_INSIDE = Path(inside.__file__).parent


@dataclass(frozen=True)
class Context:
    """A build's input."""

    folder: Path
    inputs_sha256: str
    """Over every file and the base's digest: two builds with the same are the same build."""
    patches: PatchReport

    def dockerfile(self, base: str) -> str:
        """The Dockerfile, FROM ``base``."""
        return (self.folder / "Dockerfile").read_text().replace(BASE_TAG, base)


def slots_of(spec: ImageSpec, lock: ImageLock) -> Composed:
    """The slot list of the route. Raises KitError(USAGE) with every reason that would run stock code silently."""
    declared = load_declared(sources.series_folder(spec))
    found = compose(spec.plugin.route, declared, lock.plugin.slots, spec.environment.get(declared.variable))
    if isinstance(found, Refused):
        raise KitError(list(found.failures), ExitCode.USAGE)
    return found


def preview(spec: ImageSpec, lock: ImageLock) -> str:
    """The Dockerfile as it would be, whether or not the lock is resolved; what is not says ``unresolved``."""
    render.check_spec(spec)
    known = lock.plugin.slots is not None or spec.plugin.route is Route.PATCH
    slots = slots_of(spec, lock) if known else _unresolved(spec.plugin.route, lock.plugin.slots)
    return _dockerfile(spec, lock, base_name(spec, lock), slots)


def _unresolved(route: Route, slots: Slots | None) -> Composed:
    return Composed(route=route, environment={}, slots=slots.defaults if slots else (), reason="unresolved")


def base_name(spec: ImageSpec, lock: ImageLock) -> str:
    """For people, and for FROM when it is a published image: the name and the digest."""
    digest = lock.base.digest or "unresolved"
    name = f"debian-{spec.base.suite}" if isinstance(spec.base, DebianBase) else spec.base.reference.rpartition(":")[0]
    return f"{name}@{digest}"


def _dockerfile(spec: ImageSpec, lock: ImageLock, base: str, slots: Composed) -> str:
    return render.dockerfile((images_dir() / TEMPLATE).read_text(), spec, lock, base, slots)


@contextmanager
def prepared(places: Places, folder: Path, spec: ImageSpec, lock: ImageLock) -> Iterator[Context]:
    """Everything fetched, checked and laid out, in a folder that is gone afterwards.

    Raises KitError: USAGE for what is declared or locked wrongly, APPLY_FAILED for whatever is not what the lock says,
    UNREACHABLE for what cannot be fetched.
    """
    render.check_spec(spec)
    slots = slots_of(spec, lock)
    source = sources.locked_plugin(places, folder, spec, lock)
    patched, report = sources.patched(places, spec, lock, source)
    files = wheels.fetch(places, {k: w for k, w in lock.packages.items() if w is not None}, spec.python, spec.glibc)
    tools = wheels.fetch(places, {k: w for k, w in lock.tools.items() if w is not None}, spec.python, spec.glibc)
    places.cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="context-", dir=places.cache) as scratch:
        root = Path(scratch)
        root.chmod(0o755)
        _link({**files, "pip": tools["pip"]}, root / "wheels")
        _link(tools, root / "tools")
        _write(root / "tools" / "requirements.txt", "".join(f"{name}\n" for name in sorted(tools)))
        _write(root / "requirements.txt", render.requirements(lock.packages))
        _copy(_INSIDE / "install.py", root / "install.py")
        _copy(_INSIDE / "system.sh", root / "system" / "system.sh")
        _write(root / "system" / "packages.list", _debian(spec, lock))
        own = _own(root / "own", folder, spec, lock, patched)
        _copy(_INSIDE / "checker.py", root / "proof" / "checker.py")
        _copy(patched / RECEIPT, root / "proof" / "patches.json")
        _write(root / "proof" / "lock.yml", lock_text(lock))
        _write(root / "proof" / "expected.json", json.dumps(expectations(spec, lock, own), indent=1, sort_keys=True) + "\n")
        _write(root / "Dockerfile", _dockerfile(spec, lock, BASE_TAG, slots))
        known = {f"wheels/{path.name}": lock.packages[name].sha256 for name, path in files.items()}  # type: ignore[union-attr]
        yield Context(root, _digest(root, known, lock.base.digest or ""), report)


def expectations(spec: ImageSpec, lock: ImageLock, own: tuple[str, ...]) -> dict[str, Any]:
    """What the checker inside compares with. Raises KitError(USAGE) when the series is not the locked one."""
    series = load_series(sources.series_folder(spec), lock.plugin.series_sha256, spec.plugin.route)
    return render.expected(spec, lock, series.patches, slots_of(spec, lock), own)


def _own(target: Path, folder: Path, spec: ImageSpec, lock: ImageLock, patched: Path) -> tuple[str, ...]:
    """This image's own parts; returns the names of their distributions."""
    target.mkdir()
    sources.copy_tree(patched, target / "plugin")
    names = [_project(target / "plugin")]
    if spec.stand_ins:
        _same(folder / spec.stand_ins, sources.sha256_tree(folder / spec.stand_ins), lock.stand_ins_sha256)
        sources.copy_tree(folder / spec.stand_ins, target / "stand-ins")
        names.append(_project(target / "stand-ins"))
    _same(Path(sources.KERNELS), sources.kernels_version(), lock.kernels_version)
    sources.kernels_wheel(target, spec.kernel_architectures)
    target.chmod(0o755)
    return tuple(names)


def _same(place: Path, found: str, locked: str | None) -> None:
    if found != locked:
        step = "invoke image.lock, after you looked at what changed"
        raise KitError(failure("image.source_moved", str(place), locked, found, step), ExitCode.APPLY_FAILED)


def _project(folder: Path) -> str:
    """The distribution that a source tree declares."""
    try:
        declared = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"]
    except (OSError, KeyError, tomllib.TOMLDecodeError) as error:
        found = f"{type(error).__name__}: {error}"
        where = str(folder / "pyproject.toml")
        raise KitError(
            failure("image.project", where, "project.name", found, "name the distribution there"), ExitCode.APPLY_FAILED
        ) from error
    return canonicalize_name(str(declared))


def _debian(spec: ImageSpec, lock: ImageLock) -> str:
    """What is to be installed on a published base; a Debian tree holds it all."""
    if isinstance(spec.base, DebianBase):
        return ""
    return "".join(f"{name}={lock.base.packages[name]}\n" for name in sorted(spec.base.packages))


def _link(files: Mapping[str, Path], target: Path) -> None:
    """Gigabytes are not copied: the builder only reads them."""
    target.mkdir()
    for path in files.values():
        path.chmod(0o644)
        os.link(path, target / path.name)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o644)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text)
    target.chmod(0o644)


def _digest(root: Path, known: Mapping[str, str], base: str) -> str:
    """Over all files; ``known`` are hashes that were just checked."""
    content: dict[str, Any] = {"base": base}
    for path in sorted(p for p in root.rglob("*") if p.is_file() or p.is_symlink()):
        name = str(path.relative_to(root))
        content[name] = f"-> {path.readlink()}" if path.is_symlink() else known.get(name) or sha256_file(path)
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
