"""Images built for real by buildah, small ones: the same id from clean caches, and each fault that must end a build."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from kit import paths
from kit.errors import ExitCode, KitError
from kit.image import base, sources, wheels
from kit.image.commands import Failed
from kit.image.proof import compare, inside_failures, look_again, manifest_of
from kit.image.space import need_space
from tests.sim.mini_image import Mini, make, wheel
from tests.standins.plugin_standins import spec as plugin_spec

CLASH = {
    "second/__init__.py": (
        "def register():\n"
        "    from sglang.kernels.plugin_kernels.nvidia.spec import register as add\n"
        '    add(architecture="DeepseekV4ForCausalLM", path="second.spec:SPEC")\n'
    )
}


@pytest.fixture(scope="session", autouse=True)
def _possible() -> None:
    if os.environ.get("B300KIT_NO_SIM") == "1":
        pytest.skip("B300KIT_NO_SIM=1: what needs root is switched off")
    missing = [tool for tool in ("buildah", "mmdebstrap") if shutil.which(tool) is None]
    if missing or os.geteuid() != 0:
        pytest.fail(f"needs root, and apt-get install {' '.join(missing)} (B300KIT_NO_SIM=1 skips these tests)", pytrace=False)


@pytest.fixture(scope="session")
def mini(tmp_path_factory: pytest.TempPathFactory, _possible: None) -> Iterator[Mini]:
    """An image that all tests of this file share; each changes a copy."""
    root = tmp_path_factory.mktemp("mini")
    yield make(root)
    remove(root / "cache")


def remove(cache: Path) -> None:
    """A builder's storage is mounted on itself."""
    for place in [*cache.glob("image/storage/overlay/*/merged"), cache / "image" / "storage" / "overlay"]:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)
    shutil.rmtree(cache, ignore_errors=True)


def said(mini: Mini) -> list[str]:
    """Codes of what the checker inside says when the build ends badly."""
    with pytest.raises(Failed) as caught:
        mini.build()
    return [failure.code for failure in inside_failures(caught.value.err)]


@pytest.mark.timeout(900)
def test_the_same_image_from_clean_caches_and_what_is_inside(mini: Mini, tmp_path: Path) -> None:
    image = mini.build()
    manifest = manifest_of(mini.builder, image)
    assert manifest["plugin"]["requires.resident_blocks"] == 148
    assert "KV_OFFLOAD" in manifest["plugin"]["features"]
    assert set(manifest["packages"]) == {"sglang", "msgspec", "sgl-nvidia-mega", "b300kit-kernels"}
    other = make(tmp_path)
    try:
        assert other.build() == image
    finally:
        remove(tmp_path / "cache")


@pytest.mark.timeout(600)
def test_a_finished_image_is_looked_into_again_by_this_checkouts_checker(mini: Mini) -> None:
    image = mini.build()
    manifest, failures = look_again(mini.builder, image, mini.spec)
    assert failures == []
    assert manifest == manifest_of(mini.builder, image)
    built = mini.built()
    told = {"packages": {"torch": "1.0"}, "own": []}
    assert [f.where.split()[-1] for f in compare(built, mini.lock, told, {**told, "packages": {}})] == ["packages"]
    moved = mini.lock.model_copy(update={"kernels_version": "9.9"})
    assert {f.code for f in compare(built, moved, {}, {})} == {"image.lock_moved"}


@pytest.mark.timeout(600)
def test_an_sglang_of_another_interface_version_ends_the_build(mini: Mini) -> None:
    sglang = mini.sglang(**{"MEGAKERNEL_API_VERSION = 1": "MEGAKERNEL_API_VERSION = 2"})
    try:
        assert said(mini.with_packages(sglang=sglang)) == ["interface.refused"]
    finally:
        mini.sglang()


@pytest.mark.timeout(600)
def test_a_second_plugin_for_the_same_model_ends_the_build(mini: Mini) -> None:
    second = wheel(mini.places.wheels, "second", "1.0", CLASH, "second_megakernel = second:register")
    admitted = mini.spec.model_copy(update={"environment": {}})
    assert "interface.plugin_raises" in said(replace(mini.with_packages(second=second), spec=admitted))


@pytest.mark.timeout(600)
def test_a_build_tool_that_a_package_brings_ends_the_build(mini: Mini) -> None:
    tool = wheel(mini.places.wheels, "tooling", "1.0", {"tooling-1.0.data/scripts/gcc": "#!/bin/sh\n"})
    assert "image.build_tool" in said(mini.with_packages(tooling=tool))


def test_a_plugin_that_was_not_patched_never_reaches_the_builder(mini: Mini) -> None:
    for text in (plugin_spec("MANY").replace("import os\n", "import os\nMANY = int(os.environ.get('MANY', '152'))\n"),):
        other = _with_plugin(mini, text)
        with pytest.raises(KitError) as caught:
            other.build()
        assert {f.code for f in caught.value.failures} <= {"patch.ambiguous", "patch.conflict"}
        assert caught.value.exit_code == ExitCode.APPLY_FAILED


def test_a_plugin_of_another_interface_version_never_reaches_the_builder(mini: Mini) -> None:
    with pytest.raises(KitError) as caught:
        _with_plugin(mini, plugin_spec(version="2")).build()
    assert {f.code for f in caught.value.failures} == {"patch.conflict"}


def _with_plugin(mini: Mini, text: str) -> Mini:
    folder = mini.folder.parent / f"other-{abs(hash(text))}"
    shutil.copytree(mini.folder, folder, dirs_exist_ok=True)
    (folder / "plugin" / "mega" / "spec.py").write_text(text)
    plugin = mini.lock.plugin.model_copy(update={"tree_sha256": sources.sha256_tree(folder / "plugin")})
    return replace(mini, folder=folder, lock=mini.lock.model_copy(update={"plugin": plugin}))


def test_a_plugin_tree_that_is_not_the_locked_one_is_refused(mini: Mini) -> None:
    other = _with_plugin(mini, plugin_spec() + "# one more line\n")
    with pytest.raises(KitError) as caught:
        replace(other, lock=mini.lock).build()
    assert [f.code for f in caught.value.failures] == ["image.plugin_moved"]


def test_another_patch_series_than_the_locked_one_is_refused(mini: Mini) -> None:
    plugin = mini.lock.plugin.model_copy(update={"series_sha256": "0" * 64})
    with pytest.raises(KitError) as caught:
        replace(mini, lock=mini.lock.model_copy(update={"plugin": plugin})).build()
    assert [f.code for f in caught.value.failures] == ["patch.series_hash"]


def test_kernels_of_another_version_than_the_locked_one_are_refused(mini: Mini) -> None:
    with pytest.raises(KitError) as caught:
        replace(mini, lock=mini.lock.model_copy(update={"kernels_version": "9.9"})).build()
    assert [f.code for f in caught.value.failures] == ["image.source_moved"]


def test_a_tampered_package_in_the_cache_is_never_used(mini: Mini, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is fetched again; and when the index, too, has other bytes under that name, the build ends."""
    right = wheel(tmp_path, "thing", "1.0", {"thing.py": "x = 1\n"})
    index = tmp_path / "index"
    index.mkdir()
    shutil.copy(tmp_path / right.file, index)
    cached = mini.places.wheels / right.file
    cached.write_bytes(b"tampered")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    found = wheels.fetch(mini.places, {"thing": right}, "3.11", "2.36")
    assert found["thing"].read_bytes() == (index / right.file).read_bytes()
    cached.write_bytes(b"tampered")
    wheel(index, "thing", "1.0", {"thing.py": "x = 2\n"})
    with pytest.raises(KitError) as caught:
        wheels.fetch(mini.places, {"thing": right}, "3.11", "2.36")
    assert [f.code for f in caught.value.failures] == ["image.wheel_changed"]
    assert caught.value.exit_code == ExitCode.APPLY_FAILED


@pytest.mark.timeout(600)
def test_a_base_that_moved_is_refused_and_a_tampered_one_never_used(mini: Mini, tmp_path: Path) -> None:
    other = replace(mini, places=type(mini.places)(tmp_path / "image"))
    other.places.bases.mkdir(parents=True)
    wanted = "sha256:" + "0" * 64
    tampered = other.places.bases / f"{'0' * 64}.tar"
    tampered.write_bytes(b"not what its name says")
    with pytest.raises(KitError) as caught:
        base.archive(other.places, mini.spec.base, wanted, mini.spec.source_date_epoch)  # type: ignore[arg-type]
    (told,) = caught.value.failures
    assert (told.code, told.expected) == ("image.base_moved", wanted)
    assert not tampered.exists()
    assert (other.places.bases / f"{told.found.removeprefix('sha256:')}.tar").is_file()


def test_no_space_is_told_before_anything_is_done(tmp_path: Path) -> None:
    with pytest.raises(KitError) as caught:
        need_space(tmp_path, 10**18)
    assert [f.code for f in caught.value.failures] == ["image.no_space"]


@pytest.mark.timeout(900)
def test_a_build_that_was_killed_is_run_again_to_the_same_image(mini: Mini, tmp_path: Path) -> None:
    wanted = mini.build()
    script = f"from pathlib import Path\nfrom tests.sim.mini_image import make\nmake(Path({str(tmp_path)!r})).build()\n"
    process = subprocess.Popen([sys.executable, "-c", script], cwd=paths.ROOT, start_new_session=True, stderr=subprocess.DEVNULL)
    storage = tmp_path / "cache" / "image" / "storage"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(list(storage.glob("overlay/*/diff"))) < 5:
        time.sleep(0.2)
    builder = _children(process.pid)
    os.killpg(process.pid, signal.SIGKILL)
    for pid in builder:
        os.kill(pid, signal.SIGKILL)
    process.wait()
    again = make(tmp_path / "again")
    again = replace(again, places=type(again.places)(tmp_path / "cache" / "image"))
    try:
        again.builder.leftovers()
        assert again.build() == wanted
        assert again.builder.working_containers() == []
    finally:
        remove(tmp_path / "cache")


def _children(pid: int) -> list[int]:
    """buildah runs in a session of its own, so that a signal reaches all of it."""
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(word) for word in done.stdout.split()]
