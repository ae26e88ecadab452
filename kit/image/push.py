"""``image.push``: an image onto hosts, without a registry. What to send is decided here; a role sends and unpacks it."""

from __future__ import annotations

import base64
import getpass
import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from kit.apply import ansible
from kit.apply.result import ApplyEvent
from kit.apply.ssh import host_lock
from kit.errors import ExitCode, KitError, failure
from kit.facts.collect import run_script
from kit.image import bundle, delivery, onhost, record, sign
from kit.image.builders import builder_for
from kit.image.delivery import Delivery, Layer, Part, layers_folder
from kit.image.load import folder_of, load_spec
from kit.image.places import Places
from kit.image.start import config, starts
from kit.outcome import Outcome
from kit.record.store import Run
from kit.spec.target import Target
from kit.work import Work, each, finish, forks, recorded, remote

log = logging.getLogger("kit.image")

TASK = "image.push"
_LOOK_S = 60.0
SIGNERS = "allowed_signers"
ROOM = 2
"""Times the unpacked image that must be free before anything is sent: parts, the unpacked copy, and what the engine compiles."""


class There(BaseModel):
    """What a host says about images; see kit/image/onhost/look.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    images: dict[str, float]
    present: bool
    parts: dict[str, tuple[str, ...]]
    in_use: tuple[str, ...] | None
    free_bytes: int


def folder_on(target: Target) -> str:
    """Where images lie on a host."""
    return f"{target.spec.data_dir}/images"


def missing(wanted: Delivery, there: There) -> list[tuple[Layer, Part]]:
    """Parts that the host does not have yet. Pure."""
    return [
        (layer, part) for layer in wanted.layers for part in layer.parts if part.name not in there.parts.get(layer.diff_id, ())
    ]


def to_remove(wanted: str, there: There, rollback: Sequence[str]) -> tuple[str, ...]:
    """Old images: neither this one, nor running, nor what a rollback would go to. When that cannot be told: none. Pure."""
    if there.in_use is None:
        return ()
    kept = {wanted, *there.in_use, *rollback}
    return tuple(image for image in there.images if image not in kept)


def rollback_of(wanted: str, there: There) -> tuple[str, ...]:
    """The image that came last before this one. Pure."""
    older = sorted((came, image) for image, came in there.images.items() if image != wanted)
    return (older[-1][1],) if older else ()


def variables(
    places: Places, target: Target, wanted: Delivery, there: There, remove: Sequence[str], files: Mapping[str, bytes]
) -> dict[str, Any]:
    """For roles/image. Nothing in it could be taken for a template: hashes, paths, base64."""
    folder = layers_folder(places)
    return {
        "image_folder": folder_on(target),
        "image_id": wanted.image_id,
        "image_user": {"name": wanted.user, "uid": _uid(wanted), "home": config(wanted).get("WorkingDir") or "/"},
        "image_runtime": wanted.runtime,
        "image_configuration": base64.b64encode(wanted.configuration.encode()).decode(),
        "image_layers": [layer.model_dump(include={"diff_id", "parts", "whiteouts"}) for layer in wanted.layers],
        "image_send": [
            {"src": str(folder / layer.diff_id / part.name), "layer": layer.diff_id, "name": part.name}
            for layer, part in missing(wanted, there)
        ],
        "image_files": [{"name": name, "content": base64.b64encode(data).decode()} for name, data in files.items()],
        "image_remove": list(remove),
        "image_keep_layers": [],
    }


def look(one: Work, wanted: Delivery, usage: bool = False) -> There:
    """Ask a host, read-only, in one round trip."""
    script = (Path(onhost.__file__).parent / "look.py").read_bytes()
    layers = [
        {"diff_id": layer.diff_id, "parts": [part.model_dump(include={"name", "bytes"}) for part in layer.parts]}
        for layer in wanted.layers
    ]
    asked = {"folder": folder_on(one.target), "image_id": wanted.image_id, "usage": usage, "layers": layers}
    asked |= {"runtime": wanted.runtime, "user": wanted.user, "uid": _uid(wanted)}
    return There.model_validate(run_script(remote(one.target), script, json.dumps(asked), _LOOK_S))


def need_room(one: Work, wanted: Delivery, there: There) -> None:
    """Raises KitError(REFUSED, ``image.no_space``) before anything is sent."""
    need = ROOM * wanted.unpacked_bytes
    if there.free_bytes < need:
        where = f"{one.name}: {folder_on(one.target)}"
        expected = f"{need / 1e9:.1f} GB free: {ROOM} times the image"
        found, step = f"{there.free_bytes / 1e9:.1f} GB", "free space there, or invoke image.push --prune"
        raise KitError(failure("image.no_space", where, expected, found, step), ExitCode.REFUSED)


def push(targets: Sequence[Target], image: str, archive: str, prune: bool) -> Outcome:
    """Deliver to each host its image (or a profile, an id, a bundle), prove it by its id, and that it starts."""
    places = Places.here()
    if archive:
        one = bundle.read(places, Path(archive))
        return deliver(places, dict.fromkeys(targets, one), prune)
    names = {target: image or target.spec.image for target in targets}
    packed = {name: prepared(places, name) for name in dict.fromkeys(names.values())}
    return deliver(places, {target: packed[name] for target, name in names.items()}, prune)


def make_bundle(image: str, out: str) -> Outcome:
    """One archive that installs without a network."""
    places = Places.here()
    return bundle.write(places, prepared(places, image), Path(out))


def prepared(places: Places, image: str) -> Delivery:
    """An image built here, packed. Raises KitError(USAGE) for one that was not built here."""
    built = record.pick(places, image)
    spec = load_spec(folder_of(built.profile))
    return delivery.prepare(places, builder_for(built.builder, places), spec, built.image_id)


def signers(target: Target) -> Path | None:
    """Who may sign images for this fleet: ``allowed_signers`` beside ``fleet.yml``. None when it names nobody for images."""
    path = target.source.parent.parent / SIGNERS
    return path if path.is_file() and sign.admits(path.read_text()) else None


def documents(places: Places, target: Target, image_id: str) -> tuple[dict[str, bytes], str]:
    """What goes beside the image, and who signed it (empty when nobody need). Raises KitError(REFUSED, ``image.signature``)."""
    files = sign.read_documents(places, image_id)
    allowed = signers(target)
    if allowed is None:
        return files, ""
    who = sign.check(files, image_id, allowed)
    return {**files, SIGNERS: allowed.read_bytes()}, who


def deliver(places: Places, wanted: Mapping[Target, Delivery], prune: bool) -> Outcome:
    """Look, send what is missing, look again, start it. A host that has the image is only looked at."""
    targets = list(wanted)
    with recorded(TASK, targets) as (run, work), ExitStack() as locks:
        jobs: dict[Target, dict[str, Any]] = {}
        who = f"{getpass.getuser()}@{socket.gethostname()} {TASK} {run.id}"

        def decide(one: Work) -> None:
            image = wanted[one.target]
            files, one.result["signed_by"] = documents(places, one.target, image.image_id)
            there = look(one, image, usage=prune)
            run.host(one.name).put("images", there)
            old = to_remove(image.image_id, there, rollback_of(image.image_id, there)) if prune else ()
            one.result.update(_said(one, image), present=there.present, sent_bytes=0, removed=list(old))
            if there.present and not old:
                return
            if not there.present:
                need_room(one, image, there)
            locks.enter_context(host_lock(remote(one.target), who))
            given = variables(places, one.target, image, there, old, files)
            one.result["sent_bytes"] = sum(part.bytes for _, part in missing(image, there))
            run.host(one.name).put("delivery", given)
            jobs[one.target] = given

        each(work, forks(targets), decide)
        if jobs:
            with run.stage("deliver"):
                results = ansible.play("image", jobs, run.path, teller(run), forks(list(jobs)))

            def confirm(one: Work) -> None:
                result = results[one.name]
                run.host(one.name).put("recap", result)
                if result.failures:
                    raise KitError(list(result.failures), result.exit_code)
                image = wanted[one.target]
                _arrived(one, image, look(one, image))
                with run.host(one.name).stage("start"):
                    one.result["starts"] = starts(one, image, folder_on(one.target))

            each([one for one in work if one.target in jobs and not one.failures], forks(list(jobs)), confirm)
        return finish(TASK, run, work, "\n".join(_line(one) for one in work if not one.failures))


def _said(one: Work, image: Delivery) -> dict[str, Any]:
    """What an engine unit needs to start the image."""
    told = config(image)
    return {
        "image_id": image.image_id,
        "profile": image.profile,
        "runtime": image.runtime,
        "root": f"{folder_on(one.target)}/{image.image_id}/rootfs" if image.runtime == "rootdir" else None,
        "environment": told.get("Env", []),
        "entrypoint": told.get("Entrypoint", []),
        "user": image.user,
    }


def _uid(image: Delivery) -> int:
    return int(str(config(image)["User"]).partition(":")[0])


def _line(one: Work) -> str:
    sent = one.result["sent_bytes"]
    what = f"{sent / 1e6:.0f} MB sent, starts" if "starts" in one.result else "was there already"
    gone = f"; {len(one.result['removed'])} old images removed" if one.result["removed"] else ""
    return f"{one.name}: {one.result['profile']} {one.result['image_id'][:12]}: {what}{gone}"


def teller(run: Run) -> Callable[[ApplyEvent], None]:
    """Shows what Ansible changes, and records all it does."""

    def tell(event: ApplyEvent) -> None:
        log.log(logging.DEBUG if event.status in ("ok", "skipped") else logging.INFO, "%s: %s", event.host, event.line())
        run.host(event.host).event(event)

    return tell


def _arrived(one: Work, image: Delivery, there: There) -> None:
    """The id is compared again, from outside the role."""
    if not there.present:
        where = f"{one.name}: {folder_on(one.target)}/{image.image_id[:12]}"
        found = f"{len(there.images)} other images"
        raise KitError(failure("image.not_there", where, image.image_id, found, "see the host"), ExitCode.APPLY_FAILED)
