"""Resolves ``image.yml`` into ``lock.yml``, and says what moved. What cannot be asked stays null: nothing is invented."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from kit.errors import Failure, KitError, failure
from kit.image import base, sources, wheels
from kit.image.buildah import Buildah
from kit.image.load import load_requirements
from kit.image.model import DebianBase, ImageLock, ImageSpec, LockedBase, LockedPlugin, Wheel
from kit.image.places import Places

T = TypeVar("T")
Wheels = Mapping[str, Wheel | None]


def moved(old: ImageLock | None, new: ImageLock) -> list[str]:
    """One line for each value that differs, ``name: old -> new``. Pure."""
    before, after = (_flat(lock.model_dump(mode="json")) if lock is not None else {} for lock in (old, new))
    out = []
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            out.append(f"{name}: {_shown(before, name)} -> {_shown(after, name)}")
    return out


def keep_known(old: ImageLock | None, new: ImageLock) -> ImageLock:
    """Where ``new`` could not be told and ``old`` still answers the same question, ``old`` stands. Pure."""
    if old is None:
        return new

    def packages(before: Wheels, after: Wheels) -> Wheels:
        return after if any(after.values()) else {name: before.get(name) for name in after}

    base_ = new.base
    if base_.digest is None and {*base_.packages} <= {*old.base.packages}:
        base_ = old.base
    plugin = new.plugin
    if plugin.tree_sha256 is None:
        plugin = old.plugin.model_copy(update={"series_sha256": plugin.series_sha256})
    return new.model_copy(
        update={
            "base": base_,
            "plugin": plugin,
            "packages": packages(old.packages, new.packages),
            "tools": packages(old.tools, new.tools),
        }
    )


def _flat(value: object, name: str = "") -> dict[str, object]:
    if isinstance(value, Mapping) and value:
        return {k: v for key, part in value.items() for k, v in _flat(part, f"{name}.{key}" if name else str(key)).items()}
    return {name: value}


def _shown(values: Mapping[str, object], name: str) -> str:
    if name not in values:
        return "absent"
    value = values[name]
    return "null" if value is None else str(value)[:80]


def stale(folder: Path, spec: ImageSpec, lock: ImageLock) -> list[Failure]:
    """What this checkout says and the lock does not: no network, no download.

    Packages asked for, patches, the plugin's folder, kernels, stand-ins, Debian packages.
    """
    out: list[Failure] = []
    step = f"invoke image.lock --profile {spec.name}"

    def compare(name: str, wanted: object, found: object) -> None:
        if wanted != found:
            out.append(failure("image.lock_stale", f"{folder.name}/lock.yml {name}", wanted, found, step))

    for key, file, locked in (("packages", spec.requirements, lock.packages), ("tools", spec.tools, lock.tools)):
        asked = load_requirements(folder / file)
        for name in sorted({*asked, *locked}):
            wheel = locked.get(name)
            if name in locked and name in asked and wheel is None:
                continue
            compare(f"{key}.{name}", asked.get(name, "absent"), wheel.version if wheel is not None else "absent")
    for name in spec.base.packages:
        if name not in lock.base.packages:
            compare(f"base.packages.{name}", "a version", "absent")
    local = _local(folder, spec)
    compare("plugin.series_sha256", local.plugin.series_sha256, lock.plugin.series_sha256)
    if local.plugin.tree_sha256 is not None:
        compare("plugin.tree_sha256", local.plugin.tree_sha256, lock.plugin.tree_sha256)
        compare("plugin.slots", local.plugin.slots, lock.plugin.slots)
    compare("stand_ins_sha256", local.stand_ins_sha256, lock.stand_ins_sha256)
    compare("kernels_version", local.kernels_version, lock.kernels_version)
    return out


def _local(folder: Path, spec: ImageSpec) -> ImageLock:
    """All that this checkout alone can tell."""
    source = sources.local_source(folder, spec)
    plugin = LockedPlugin(
        commit=None,
        tree_sha256=sources.sha256_tree(source) if source is not None else None,
        series_sha256=sources.series_sha256(spec),
        slots=sources.derive_slots(spec, source) if source is not None else None,
    )
    return ImageLock(
        schema_version=1,
        image=spec.name,
        base=LockedBase(digest=None, packages=dict.fromkeys(spec.base.packages)),
        packages=dict.fromkeys(load_requirements(folder / spec.requirements)),
        tools=dict.fromkeys(load_requirements(folder / spec.tools)),
        plugin=plugin,
        stand_ins_sha256=sources.sha256_tree(folder / spec.stand_ins) if spec.stand_ins else None,
        kernels_version=sources.kernels_version(),
    )


def own_parts(folder: Path, spec: ImageSpec, old: ImageLock) -> ImageLock:
    """``old`` with what this checkout itself holds taken anew: patches, the plugin's folder, kernels, stand-ins."""
    local = _local(folder, spec)
    plugin = local.plugin
    if plugin.tree_sha256 is None:
        plugin = old.plugin.model_copy(update={"series_sha256": plugin.series_sha256})
    parts = {"plugin": plugin, "stand_ins_sha256": local.stand_ins_sha256, "kernels_version": local.kernels_version}
    return old.model_copy(update=parts)


def resolve(places: Places, folder: Path, spec: ImageSpec) -> tuple[ImageLock, list[KitError]]:
    """The lock as of now, and why parts of it are null: each place is asked, whatever another one answered."""
    lock = _local(folder, spec)
    errors: list[KitError] = []

    def ask(call: Callable[[], T], without: T) -> T:
        try:
            return call()
        except KitError as error:
            errors.append(error)
            return without

    locked_base = ask(lambda: _base(places, spec), lock.base)
    plugin = ask(lambda: _plugin(places, folder, spec, lock.plugin), lock.plugin)
    none: dict[str, Wheel] = {}
    tools = ask(lambda: wheels.resolve(places, load_requirements(folder / spec.tools), spec.python, spec.glibc), none)
    wanted = load_requirements(folder / spec.requirements)
    packages = ask(lambda: wheels.resolve(places, wanted, spec.python, spec.glibc), none)
    resolved = {
        "base": locked_base,
        "plugin": plugin,
        "tools": {**lock.tools, **tools},
        "packages": {**lock.packages, **packages},
    }
    return lock.model_copy(update=resolved), errors


def _base(places: Places, spec: ImageSpec) -> LockedBase:
    if isinstance(spec.base, DebianBase):
        path, digest = base.archive(places, spec.base, None, spec.source_date_epoch)
        return LockedBase(digest=digest, packages=base.packages_in(path))
    digest, packages = base.resolve_published(Buildah(places), spec.base)
    return LockedBase(digest=digest, packages=packages)


def _plugin(places: Places, folder: Path, spec: ImageSpec, local: LockedPlugin) -> LockedPlugin:
    commit = sources.resolve_commit(spec)
    if commit is None:
        return local
    source = sources.plugin_source(places, folder, spec, commit)
    slots = sources.derive_slots(spec, source)
    return LockedPlugin(commit=commit, tree_sha256=sources.sha256_tree(source), series_sha256=local.series_sha256, slots=slots)
