"""Delivery to a simulated host, with a small image: sent once, resumed, compared, started, signed, bundled, refused."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.errors import ExitCode
from kit.image import bundle, delivery, sign
from kit.image.delivery import Delivery
from kit.image.places import Places
from kit.image.push import SIGNERS, deliver
from kit.outcome import Outcome
from kit.spec.pick import pick
from kit.spec.target import Target
from tests.cli import invoke
from tests.sim.mini_image import Mini, make
from tests.sim.test_image_build import _possible, remove  # noqa: F401

SimHost = Callable[[str], str]
ROOT = "/var/lib/b300kit/images"


@pytest.fixture(scope="module")
def mini(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mini]:
    root = tmp_path_factory.mktemp("push")
    yield make(root)
    remove(root / "cache")


@pytest.fixture(scope="module")
def wanted(mini: Mini) -> Delivery:
    """Built and packed."""
    built = mini.built()
    sign.keep_documents(mini.places, built)
    return delivery.prepare(mini.places, mini.builder, mini.spec, built.image_id)


@pytest.fixture
def target(sim_host: SimHost, on_host: Callable[..., subprocess.CompletedProcess[str]]) -> Target:
    name = sim_host("b300-4")
    on_host(name, f"sudo rm -rf {ROOT}")
    return pick(name)[0]


@pytest.fixture(autouse=True)
def _runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("B300KIT_RUNS", str(tmp_path / "runs"))


def send(mini: Mini, target: Target, wanted: Delivery) -> tuple[Outcome, dict[str, object]]:
    outcome = deliver(mini.places, {target: wanted}, prune=False)
    (host,) = outcome.hosts.values()
    return outcome, dict(host.result)


def codes(outcome: Outcome) -> list[str]:
    return [failure.code for host in outcome.hosts.values() for failure in host.failures]


@pytest.mark.timeout(900)
def test_an_image_is_sent_once_resumed_and_starts(mini: Mini, target: Target, wanted: Delivery, on_host) -> None:
    outcome, told = send(mini, target, wanted)
    assert codes(outcome) == []
    assert told["sent_bytes"] == wanted.sent_bytes
    assert set(told["starts"]) == {"verify", "help"}  # type: ignore[call-overload]
    root = f"{ROOT}/{wanted.image_id}"
    assert told["root"] == f"{root}/rootfs"
    assert on_host(target.name, f"sha256sum {root}/image.json").stdout.split()[0] == wanted.image_id
    assert on_host(target.name, f"stat -c %U:%G {root}/rootfs/opt/engine").stdout.strip() == "root:root"

    outcome, told = send(mini, target, wanted)
    assert (codes(outcome), told["present"], told["sent_bytes"]) == ([], True, 0)
    assert not (Path(str(told["record"])) / "recap.json").exists(), "Ansible was not run"

    # Cut in the middle: the image is not in place, one part is missing and one is half there.
    first, last = wanted.layers[0], wanted.layers[-1]
    half = f"{ROOT}/.parts/{first.diff_id}/{first.parts[0].name}"
    gone = f"{ROOT}/.parts/{last.diff_id}/{last.parts[0].name}"
    on_host(target.name, f"sudo rm -r {root} {gone} && sudo truncate -s 1000 {half}")
    outcome, told = send(mini, target, wanted)
    assert codes(outcome) == []
    assert told["sent_bytes"] == first.parts[0].bytes + last.parts[0].bytes


@pytest.mark.timeout(600)
def test_a_part_that_was_tampered_with_on_the_host_is_refused_then_sent_again(
    mini: Mini, target: Target, wanted: Delivery, on_host
) -> None:
    part = wanted.layers[0].parts[0]
    place = f"{ROOT}/.parts/{wanted.layers[0].diff_id}"
    on_host(target.name, f"sudo mkdir -p {place} && sudo truncate -s {part.bytes} {place}/{part.name}")
    outcome, _ = send(mini, target, wanted)
    assert outcome.hosts[target.name].exit_code == ExitCode.APPLY_FAILED
    assert "has sha256" in outcome.hosts[target.name].failures[0].found
    assert on_host(target.name, f"sudo ls {ROOT}").stdout.split() == []
    outcome, _ = send(mini, target, wanted)
    assert codes(outcome) == []


def test_too_little_room_is_refused_before_anything_is_sent(mini: Mini, target: Target, wanted: Delivery, on_host) -> None:
    huge = wanted.layers[0].model_copy(update={"bytes": 10**15})
    outcome, _ = send(mini, target, wanted.model_copy(update={"layers": (huge, *wanted.layers[1:])}))
    assert codes(outcome) == ["image.no_space"]
    assert outcome.hosts[target.name].exit_code == ExitCode.REFUSED
    assert on_host(target.name, f"ls -d {ROOT}", check=False).returncode != 0


@pytest.fixture
def signed_fleet(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Target, Path]:
    """(the host in a fleet that takes signed images only, the key that signs)."""
    fleet = tmp_path / "fleet"
    shutil.copytree(target.source.parent.parent, fleet)
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = " ".join((tmp_path / "key.pub").read_text().split()[:2])
    (fleet / SIGNERS).write_text(f'operator namespaces="{sign.NAMESPACE}" {public}\n')
    monkeypatch.setenv("B300KIT_FLEET", str(fleet))
    return pick(target.name)[0], key


@pytest.mark.timeout(600)
def test_a_fleet_with_signers_takes_signed_images_only_and_the_host_checks_by_itself(
    mini: Mini, wanted: Delivery, signed_fleet: tuple[Target, Path], monkeypatch: pytest.MonkeyPatch, on_host
) -> None:
    target, key = signed_fleet
    outcome, _ = send(mini, target, wanted)
    assert (codes(outcome), outcome.hosts[target.name].exit_code) == (["image.signature"], ExitCode.REFUSED)

    monkeypatch.setattr(sign.Places, "here", classmethod(lambda cls: mini.places))
    place = sign.folder(mini.places, wanted.image_id)
    signature = place / sign.SIGNATURE
    try:
        monkeypatch.setattr(sign, "keep_documents", lambda places, built: place)
        assert sign.sign(wanted.image_id, str(key)).exit_code == ExitCode.OK
        outcome, told = send(mini, target, wanted)
        assert codes(outcome) == []
        assert told["signed_by"] == "operator"
        assert "signature" in told["starts"]  # type: ignore[operator]

        manifest = place / sign.MANIFEST
        before = manifest.read_bytes()
        manifest.write_bytes(before.replace(b"148", b"152"))
        outcome, _ = send(mini, target, wanted)
        assert codes(outcome) == ["image.signature"]
        manifest.write_bytes(before)
    finally:
        signature.unlink(missing_ok=True)


@pytest.mark.timeout(600)
def test_a_bundle_installs_without_the_builder_and_a_tampered_one_is_refused(
    mini: Mini, target: Target, wanted: Delivery, tmp_path: Path
) -> None:
    archive = tmp_path / "image.bundle"
    made = bundle.write(mini.places, wanted, archive)
    assert made.result["image_id"] == wanted.image_id
    first = archive.read_bytes()
    bundle.write(mini.places, wanted, archive)
    assert archive.read_bytes() == first, "the same image, the same bytes"

    elsewhere = Places(tmp_path / "elsewhere" / "image")
    got = bundle.read(elsewhere, archive)
    outcome = deliver(elsewhere, {target: got}, prune=False)
    assert codes(outcome) == []

    middle = first.index(b"parts/") + 600
    archive.write_bytes(first[:middle] + bytes([first[middle] ^ 1]) + first[middle + 1 :])
    with pytest.raises(Exception, match="bundle_tampered") as caught:
        bundle.read(Places(tmp_path / "third" / "image"), archive)
    assert caught.value.exit_code == ExitCode.REFUSED  # type: ignore[attr-defined]
    archive.write_bytes(first[: len(first) // 2])
    with pytest.raises(Exception, match=r"image\.bundle"):
        bundle.read(Places(tmp_path / "fourth" / "image"), archive)


def test_the_command_names_what_was_built_when_asked_for_something_else(target: Target) -> None:
    ran = invoke("image.push", "--host", target.name, "--image", "nothing")
    assert ran.code == ExitCode.USAGE
    assert ran.codes == ["image.unknown"]
