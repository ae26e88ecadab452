"""The image commands as an operator has them: exit status, one JSON document, all reasons at once. Nothing is built here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit.image import load, sign
from kit.image.record import Built
from kit.image.render import lock_sha256
from kit.image.sbom import bill
from tests.cli import invoke
from tests.standins.plugin_standins import SHAPES, write


@pytest.mark.parametrize(("shape", "code", "state"), [("literal", 0, "applies"), ("wrong-name", 5, "ambiguous")])
def test_patch_check_exits_0_when_the_series_fits_and_5_when_a_person_must_look(
    tmp_path: Path, shape: str, code: int, state: str
) -> None:
    name = shape if shape in SHAPES else next(n for n, one in SHAPES.items() if one.blocks == state)
    source = write(SHAPES[name], tmp_path / "plugin")
    before = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    ran = invoke("patch-check", "--source", str(source))
    assert ran.code == code, ran.err
    patches = {patch["name"]: patch for patch in ran.document["result"]["patches"]}
    assert patches["0001-resident-blocks-148"]["state"] == state
    assert {"name", "state", "sites", "reason"} <= set(patches["0001-resident-blocks-148"])
    after = {path: path.read_bytes() for path in source.rglob("*") if path.is_file()}
    assert after == before, "it writes nothing there"


@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (("patch-check", "--source", "/no-such-folder"), 2, "patch.source"),
        (("patch-check",), 2, "cli.missing_option"),
        (("build-image", "--profile", "b200"), 2, "image.profile"),
        (("build-image", "--profile", "b300"), 2, "image."),
        (("build-image", "--profile", "sim", "--builder", "podman"), 2, "image."),
        (("image.lock", "--profile", "b200", "--check"), 2, "image.profile"),
        (("image.verify", "--image", "nothing-of-that-name"), 2, "image.unknown"),
        (("image.sign", "--image", "nothing-of-that-name", "--key", "k"), 2, "image.unknown"),
        (("image.bundle", "--image", "nothing-of-that-name", "--out", "o"), 2, "image.unknown"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_done(words: tuple[str, ...], code: int, name: str, tmp_path: Path) -> None:
    ran = invoke(*words, B300KIT_CACHE=tmp_path / "cache", B300KIT_RUNS=tmp_path / "runs")
    assert ran.code == code, ran.err
    assert all(found.startswith(name) for found in ran.codes)
    assert all(failure["next"] for failure in ran.document["failures"])


@pytest.mark.parametrize("profile", ["sim", "b300"])
def test_a_dry_run_shows_the_recipe_and_touches_nothing(profile: str, tmp_path: Path) -> None:
    ran = invoke("build-image", "--profile", profile, "--dry-run", B300KIT_RUNS=tmp_path / "runs")
    assert "image.no_lock" not in ran.codes
    assert ran.document["result"]["dockerfile"].count("FROM ") == 4
    assert not (tmp_path / "runs").exists()
    assert bool(ran.document["result"]["unresolved"]) is (profile == "b300")


def _built() -> Built:
    lock = load.load_lock(load.folder_of("sim"))
    manifest = {
        "lock_sha256": lock_sha256(lock),
        "simulated": True,
        "packages": {"torch": {"version": "2.13.0+cpu"}, "sgl-nvidia-mega": {"version": "0+simulated"}},
        "debian": {"libc6": "2.36-9+deb12u14"},
    }
    return Built(
        profile="sim", image_id="1" * 64, builder="buildah", builder_version="1", reproducible=True, inputs_sha256="2" * 64,
        lock_sha256=lock_sha256(lock), base="b", seconds=1.0, manifest=manifest,
    )  # fmt: skip


def test_the_bill_of_materials_names_every_package_and_is_the_same_each_time() -> None:
    folder = load.folder_of("sim")
    spec, lock = load.load_spec(folder), load.load_lock(folder)
    text = bill(_built(), spec, lock)
    assert text == bill(_built(), spec, lock)
    document = json.loads(text)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
    parts = {part["name"]: part for part in document["components"]}
    assert set(parts) == {"torch", "sgl-nvidia-mega", "libc6"}
    torch = lock.packages["torch"]
    assert torch is not None
    assert parts["torch"]["hashes"] == [{"alg": "SHA-256", "content": torch.sha256}]
    assert parts["torch"]["purl"].startswith("pkg:pypi/torch@2.13.0")
    assert parts["libc6"]["purl"].startswith("pkg:deb/debian/libc6@")
    assert "hashes" not in parts["sgl-nvidia-mega"]


def test_the_statement_names_image_lock_manifest_and_bill_by_hash() -> None:
    files = sign.documents(_built())
    told = json.loads(files[sign.STATEMENT])
    assert told["image_id"] == "1" * 64
    assert {key for key in told if key.endswith("_sha256")} == {"lock_sha256", "manifest_sha256", "sbom_sha256"}


@pytest.mark.parametrize(
    ("text", "admitted"),
    [
        ("", False),
        ("# operator ssh-ed25519 AAAA\n", False),
        ("operator ssh-ed25519 AAAA\n", True),
        ('operator namespaces="b300kit-reference" ssh-ed25519 AAAA\n', False),
        ('operator namespaces="b300kit-reference,b300kit-image" ssh-ed25519 AAAA\n', True),
        ('operator namespaces="b300kit-*" ssh-ed25519 AAAA\n', True),
    ],
)
def test_who_may_sign_images(text: str, admitted: bool) -> None:
    assert sign.admits(text) is admitted
