"""``image.lock``, ``build-image`` and ``image.verify`` as outcomes, their stages in order. A newcomer to images starts here."""

from __future__ import annotations

import fcntl
import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kit import paths
from kit.errors import ExitCode, Failure, KitError, failure
from kit.image import base, lock, record, sources
from kit.image.builders import Builder, builder_for
from kit.image.commands import Failed
from kit.image.context import Context, base_name, expectations, prepared, preview, slots_of
from kit.image.load import folder_of, load_lock, load_spec, write_lock
from kit.image.model import DebianBase, ImageLock, ImageSpec
from kit.image.places import Places
from kit.image.proof import SHARE, compare, inside_failures, look_again, manifest_of
from kit.image.render import check_spec, lock_sha256
from kit.image.sign import keep_documents
from kit.image.space import BUILD_BYTES, need_space
from kit.outcome import Outcome
from kit.patch.check import patch_check
from kit.record.store import Run

BUILD, LOCK, VERIFY = "build-image", "image.lock", "image.verify"


def lock_image(profile: str, check: bool, own: bool) -> Outcome:
    """Resolve image.yml into lock.yml; ``check`` only compares what this checkout can tell, and exits 3 when it is stale.

    ``own`` takes anew what this checkout itself holds, and asks nothing of any network.
    """
    folder = folder_of(profile)
    spec = load_spec(folder)
    check_spec(spec)
    old = load_lock(folder) if (folder / "lock.yml").exists() else None
    if check:
        if old is None:
            load_lock(folder)
        assert old is not None
        stale = tuple(lock.stale(folder, spec, old))
        text = f"{profile}: the lock is what this checkout asks for" if not stale else f"{profile}: the lock is stale"
        code = ExitCode.CHANGE_PENDING if stale else ExitCode.OK
        result = {"profile": profile, "unresolved": old.unresolved(), "stale": [f.where for f in stale]}
        return Outcome(LOCK, result=result, failures=stale, skipped=_unresolved(old), exit_code=code, text=text)
    errors: list[KitError] = []
    if own:
        new = lock.own_parts(folder, spec, old or load_lock(folder))
    else:
        new, errors = lock.resolve(Places.here(), folder, spec)
        new = lock.keep_known(old, new)
    moved = lock.moved(old, new)
    write_lock(folder, new)
    lines = [*(f"  {line}" for line in moved), f"{folder / 'lock.yml'}: {len(moved) or 'nothing'} moved"]
    return Outcome(
        LOCK,
        result={"profile": profile, "moved": moved, "unresolved": new.unresolved(), "lock": str(folder / "lock.yml")},
        failures=tuple(f for error in errors for f in error.failures),
        skipped=_unresolved(new),
        exit_code=errors[0].exit_code if errors else ExitCode.OK,
        text="\n".join(lines),
    )


def _unresolved(lock: ImageLock) -> tuple[str, ...]:
    names = lock.unresolved()
    return (f"unresolved in the lock: {_some(names)}",) if names else ()


def _some(names: tuple[str, ...]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def build(profile: str, check: bool, dry_run: bool, builder: str, fresh: bool) -> Outcome:
    """Build a profile's image, or show what would be built (``dry_run``), or verify lock and patches alone (``check``)."""
    folder = folder_of(profile)
    spec, locked = load_spec(folder), load_lock(folder)
    if dry_run or check:
        return _look(folder, spec, locked, builder, dry_run)
    _must_be_resolved(folder, locked)
    stale = lock.stale(folder, spec, locked)
    if stale:
        raise KitError(stale, ExitCode.USAGE)
    places = Places.here()
    with Run.create(BUILD, sys.argv, paths.runs_dir()) as run:
        run.put("lock", record.for_a_run(locked.model_dump(mode="json")))
        with _alone(places), run.stage("inputs"), prepared(places, folder, spec, locked) as context:
            run.put("patches", context.patches)
            return _build(places, run, spec, locked, context, builder_for(builder, places), fresh)


def _build(
    places: Places, run: Run, spec: ImageSpec, locked: ImageLock, context: Context, maker: Builder, fresh: bool
) -> Outcome:
    known = None if fresh else record.find(places, spec.name, maker.name, context.inputs_sha256)
    if known is not None and maker.has(known.image_id):
        path = record.keep(places, known)
        keep_documents(places, known)
        return _told(run, known, path, cached=True)
    need_space(places.cache, BUILD_BYTES)
    maker.leftovers()
    began = time.monotonic()
    archive = None
    if isinstance(spec.base, DebianBase):
        archive = base.archive(places, spec.base, locked.base.digest, spec.source_date_epoch)[0]
    try:
        with run.stage("build"):
            image = maker.build(context, spec, locked, archive, cache=not fresh)
    except Failed as error:
        said = inside_failures(error.err)
        raise (KitError(said, ExitCode.APPLY_FAILED) if said else error) from error
    with run.stage("manifest"):
        manifest = manifest_of(maker, image)
        run.put("manifest", record.for_a_run(manifest))
    built = record.Built(
        profile=spec.name,
        image_id=image,
        builder=maker.name,
        builder_version=maker.version(),
        reproducible=maker.reproducible,
        inputs_sha256=context.inputs_sha256,
        lock_sha256=lock_sha256(locked),
        base=base_name(spec, locked),
        seconds=round(time.monotonic() - began, 1),
        manifest=manifest,
    )
    keep_documents(places, built)
    return _told(run, built, record.keep(places, built), cached=False)


def _told(run: Run, built: record.Built, path: Path, cached: bool) -> Outcome:
    document = {**built.model_dump(mode="json"), "cached": cached, "built": str(path)}
    run.put("built", record.for_a_run(document))
    run.finish(ExitCode.OK)
    plugin: Any = built.manifest.get("plugin", {})
    took = "nothing changed since it was built" if cached else f"built in {built.seconds:.0f} s"
    promise = "" if built.reproducible else " (this builder promises no equal id)"
    text = "\n".join(
        [
            f"image     {built.image_id}{promise}",
            f"profile   {built.profile}, {took} by {built.builder}",
            f"plugin    {plugin.get('name')}: {plugin.get('requires.resident_blocks')} resident blocks, "
            f"features {', '.join(plugin.get('features', []))}",
            f"record    {run.path}",
        ]
    )
    return Outcome(BUILD, result={**document, "record": str(run.path)}, text=text)


def _look(folder: Path, spec: ImageSpec, locked: ImageLock, builder: str, dry_run: bool) -> Outcome:
    """Neither fetches nor builds: the lock against this checkout, the patches against the source that is here, the template."""
    recipe = preview(spec, locked)
    stale = lock.stale(folder, spec, locked)
    skipped = list(_unresolved(locked))
    source = sources.local_source(folder, spec)
    patches: list[dict[str, Any]] = []
    failures: list[Failure] = [*stale]
    code = ExitCode.CHANGE_PENDING if stale else ExitCode.OK
    if source is None:
        skipped.append("patches: the plugin's source is not in this checkout; invoke patch-check --source PATH looks at one")
    else:
        slots_of(spec, locked)
        report = patch_check(source, sources.series_folder(spec), route=spec.plugin.route)
        patches = [p.model_dump(mode="json") for p in report.patches]
        if not report.fits:
            code = ExitCode.GATE_FAILED
            failures += [failure(f"patch.{p.state}", p.name, "applies or already", p.reason, p.next) for p in report.patches]
    unresolved = locked.unresolved()
    would = "refuse: the lock is not resolved" if unresolved else f"build with {builder}"
    result = {
        "profile": spec.name,
        "dockerfile": recipe,
        "base": base_name(spec, locked),
        "unresolved": unresolved,
        "would": would,
        "patches": patches,
        "packages": len(locked.packages),
        "lock_sha256": lock_sha256(locked),
    }
    lines = [
        f"profile   {spec.name}: {spec.title}",
        f"base      {base_name(spec, locked)}",
        f"packages  {len(locked.packages)} of Python, {len(locked.base.packages)} of Debian",
        *(f"patch     {p['name']}: {p['state']}" for p in patches),
        *(f"skipped   {line}" for line in skipped),
        f"would     {would}",
    ]
    text = "\n".join(([recipe] if dry_run else []) + lines)
    return Outcome(BUILD, result=result, failures=tuple(failures), skipped=tuple(skipped), exit_code=code, text=text)


def _must_be_resolved(folder: Path, locked: ImageLock) -> None:
    names = locked.unresolved()
    if names:
        where = f"{folder / 'lock.yml'}: {_some(names)}"
        step = f"invoke image.lock --profile {folder.name}, where the registry, git and the package index can be reached"
        raise KitError(
            failure("image.unresolved", where, "a digest, commit or hash each", f"{len(names)} null", step), ExitCode.USAGE
        )


@contextmanager
def _alone(places: Places) -> Iterator[None]:
    """One build at a time in one cache. Raises KitError(LOCKED); the kernel drops the lock when its holder dies."""
    places.cache.mkdir(parents=True, exist_ok=True)
    with (places.cache / "lock").open("a") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            where = str(places.cache)
            raise KitError(
                failure("image.locked", where, "no other build", "another build runs", "wait for it to end"), ExitCode.LOCKED
            ) from None
        yield


def verify(image: str) -> Outcome:
    """Look into a built image again with this checkout's checker; compare image, manifest and lock. Exit 5 if they differ."""
    places = Places.here()
    built = record.pick(places, image)
    maker = builder_for(built.builder, places)
    if not maker.has(built.image_id):
        step = f"invoke build-image --profile {built.profile}"
        raise KitError(failure("image.gone", built.image_id, "in the builder's storage", "not there", step), ExitCode.USAGE)
    folder = folder_of(built.profile)
    spec, locked = load_spec(folder), load_lock(folder)
    # A build begins by removing containers that a killed one left: not while this one is looked into.
    with _alone(places):
        told = json.loads(maker.read(built.image_id, f"{SHARE}/expected.json"))
        manifest, found = look_again(maker, built.image_id, spec)
    failures = compare(built, locked, expectations(spec, locked, tuple(told["own"])), told)
    failures += found
    if manifest is not None and json.dumps(manifest, sort_keys=True) != json.dumps(built.manifest, sort_keys=True):
        keys = sorted(key for key in {*manifest, *built.manifest} if manifest.get(key) != built.manifest.get(key))
        failures.append(failure("image.manifest", ", ".join(keys), "as recorded at the build", "something else", "build again"))
    code = ExitCode.GATE_FAILED if failures else ExitCode.OK
    text = "" if failures else f"{built.image_id}: as built from the lock; {len(built.manifest)} parts looked at again"
    result = {"image_id": built.image_id, "profile": built.profile, "builder": built.builder, "manifest": manifest}
    return Outcome(VERIFY, result=result, failures=tuple(failures), exit_code=code, text=text)
