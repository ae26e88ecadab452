"""Commands on images, weights and patches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.command import command

if TYPE_CHECKING:
    from kit.outcome import Outcome
    from kit.spec.target import Target

_PROFILE = "An image of images/: sim or b300."
_IMAGE = "A profile (its latest image), or an image id."


@command(
    name="patch-check",
    help={
        "source": "A plugin source tree. It is run: check only trees that you would build.",
        "series": "<project>/<version>, when there are several.",
        "route": "Only the patches of this route: patch or upstream.",
    },
)
def patch_check(source: str, series: str = "", route: str = "") -> Outcome:
    """Does each patch still apply to a plugin release?"""
    from kit.patch.flow import check

    return check(Path(source), series or None, route=route or None)


@command(
    name="build-image",
    help={
        "profile": _PROFILE,
        "check": "Verify lock and patches alone; build nothing.",
        "dry_run": "Show the Dockerfile and what would be done.",
        "builder": "buildah (the same id each time) or docker.",
        "fresh": "Build from the first layer, without any cache.",
    },
)
def build_image(
    profile: str, check: bool = False, dry_run: bool = False, builder: str = "buildah", fresh: bool = False
) -> Outcome:
    """An engine image from its lock, patched, proved from inside."""
    from kit.image import flow

    return flow.build(profile, check, dry_run, builder, fresh)


@command(
    help={
        "profile": _PROFILE,
        "check": "Only compare with this checkout; exit 3 when the lock is stale.",
        "own": "Take anew only what this checkout itself holds (patches, kernels); asks no network.",
    }
)
def image_lock(profile: str, check: bool = False, own: bool = False) -> Outcome:
    """Resolve an image's digests and hashes; shows what moved."""
    from kit.image import flow

    return flow.lock_image(profile, check, own)


@command(help={"image": _IMAGE})
def image_verify(image: str) -> Outcome:
    """Is an image what its manifest and lock say? Exit 5 if not."""
    from kit.image import flow

    return flow.verify(image)


@command(
    hosts=True,
    help={
        "image": "A profile or an image id; else the one that the host declares.",
        "bundle": "An archive of image.bundle, instead.",
        "prune": "Remove old images: neither running, nor the one before.",
    },
)
def image_push(targets: list[Target], image: str = "", bundle: str = "", prune: bool = False) -> Outcome:
    """Deliver an image to hosts and prove that it starts there."""
    from kit.image import push

    return push.push(targets, image, bundle, prune)


@command(
    help={"image": "A profile (its latest image), or an image id.", "key": "SSH private key file, or .pub of one in the agent."}
)
def image_sign(image: str, key: str) -> Outcome:
    """Sign what an image is; hosts verify it offline."""
    from kit.image import sign

    return sign.sign(image, key)


@command(
    hosts=True,
    help={"source": "The model's folder here: weights, tokenizer, chat template.", "name": "Its folder's name on the hosts."},
)
def weights_push(targets: list[Target], source: str, name: str) -> Outcome:
    """Put a model onto hosts: resumable, never over another one."""
    from kit.image import weights

    return weights.push(targets, source, name)


@command(
    hosts=True,
    help={
        "source": "The model's folder here, to compare with.",
        "name": "Its folder's name on the hosts.",
        "full": "Read every byte; else size and sampled hash.",
    },
)
def weights_verify(targets: list[Target], source: str, name: str, full: bool = False) -> Outcome:
    """Is a model on hosts as it is here? Exit 5 if not."""
    from kit.image import weights

    return weights.verify(targets, source, name, full)


@command(help={"image": _IMAGE, "out": "The archive to write."})
def image_bundle(image: str, out: str) -> Outcome:
    """One archive of an image that installs without a network."""
    from kit.image import push

    return push.make_bundle(image, out)
