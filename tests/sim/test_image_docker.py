"""The docker builder against a real daemon that these tests start and stop: the same files, and a daemon that goes away."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.image import delivery, onhost
from kit.image.context import prepared
from kit.image.docker import Docker
from kit.image.proof import look_again, manifest_of
from tests.sim.mini_image import Mini, make
from tests.sim.test_image_build import remove
from tests.unit.image.test_delivery import TREE

OPTIONS = ("--bridge", "none", "--iptables=false", "--ip-forward=false", "--ip-masq=false")


@contextlib.contextmanager
def daemon(root: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon with its own socket, folders and no network; gone afterwards."""
    root.mkdir(parents=True, exist_ok=True)
    socket = root / "s"
    words = ["dockerd", "--data-root", str(root / "data"), "--exec-root", str(root / "exec"), "--pidfile", str(root / "pid")]
    with (root / "log").open("ab") as log:
        process = subprocess.Popen([*words, "-H", f"unix://{socket}", *OPTIONS], stdout=log, stderr=log, start_new_session=True)
    try:
        deadline = time.monotonic() + 120
        while not (socket.exists() and b"API listen" in (root / "log").read_bytes()):
            assert process.poll() is None and time.monotonic() < deadline, (root / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


@pytest.fixture(scope="module")
def possible() -> None:
    if os.environ.get("B300KIT_NO_SIM") == "1":
        pytest.skip("B300KIT_NO_SIM=1: what needs root is switched off")
    if shutil.which("dockerd", path=f"{os.environ['PATH']}:/usr/sbin") is None or os.geteuid() != 0:
        pytest.fail("needs root, and apt-get install docker.io (B300KIT_NO_SIM=1 skips these tests)", pytrace=False)


@pytest.fixture
def mini(possible: None, tmp_path: Path) -> Iterator[Mini]:
    yield make(tmp_path)
    remove(tmp_path / "cache")


@pytest.fixture
def short(possible: None) -> Iterator[Path]:
    """A folder with a short name: a socket's path may not be long."""
    root = Path("/run") / f"b300kit-test-{os.getpid()}"
    yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.timeout(900)
def test_docker_builds_the_same_files_as_buildah(mini: Mini, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = manifest_of(mini.builder, mini.build())
    monkeypatch.setenv("DOCKER_HOST", f"unix://{short}/s")
    with daemon(short):
        docker = Docker(mini.places)
        with prepared(mini.places, mini.folder, mini.spec, mini.lock) as context:
            image = docker.build(context, mini.spec, mini.lock, mini.base())
        assert docker.has(image)
        assert manifest_of(docker, image) == wanted, "installed files, byte for byte"
        assert look_again(docker, image, mini.spec) == (wanted, [])
        assert not docker.reproducible, "and the record says so"
        with docker.layers(image) as layers:
            for path in layers.iterdir():
                assert hashlib.sha256(path.read_bytes()).hexdigest() == path.name
        assert hashlib.sha256(docker.configuration(image)).hexdigest() == image


@pytest.mark.timeout(900)
def test_parts_of_a_delivery_are_loaded_into_a_daemon_under_the_same_id(
    mini: Mini, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What roles/image does on a host whose engine is a container; its module is run here, on a real daemon."""
    image = mini.build()
    docker_spec = mini.spec.model_copy(update={"runtime": "docker"})
    wanted = delivery.prepare(mini.places, mini.builder, docker_spec, image)
    folder = tmp_path / "images"
    shutil.copytree(delivery.layers_folder(mini.places), folder / ".parts")
    options = {
        "image": image,
        "runtime": "docker",
        "configuration": base64.b64encode(wanted.configuration.encode()).decode(),
        "layers": [layer.model_dump(mode="json") for layer in wanted.layers],
        "files": [],
    }
    monkeypatch.setenv("DOCKER_HOST", f"unix://{short}/s")
    with daemon(short):
        TREE.put(folder, options)
        assert TREE.in_daemon(image)
        look = Path(onhost.__file__).parent / "look.py"
        asked = {
            "folder": str(folder),
            "image_id": image,
            "runtime": "docker",
            "user": "root",
            "uid": 0,
            "usage": True,
            "layers": [],
        }
        told = json.loads(subprocess.run([sys.executable, look, json.dumps(asked)], capture_output=True, check=True).stdout)
        assert (told["present"], told["in_use"]) == (True, [])
        assert TREE.prune(folder, [image], [], "docker") == [image]
        assert not TREE.in_daemon(image)


@pytest.mark.timeout(900)
def test_a_daemon_that_goes_away_in_the_middle_is_told_as_that(mini: Mini, short: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{short}/s")
    with daemon(short) as process, prepared(mini.places, mini.folder, mini.spec, mini.lock) as context:
        docker = Docker(mini.places)
        log = short / "log"

        def cut() -> None:
            # The first container of the build runs: the middle.
            while not list((short / "data" / "containers").glob("*")) and process.poll() is None:
                time.sleep(0.05)
            os.kill(process.pid, signal.SIGKILL)

        killer = threading.Thread(target=cut, daemon=True)
        killer.start()
        with pytest.raises(KitError) as caught:
            docker.build(context, mini.spec, mini.lock, mini.base())
        killer.join(60)
        assert [f.code for f in caught.value.failures] == ["image.daemon"], log.read_text()[-500:]
        assert caught.value.exit_code == ExitCode.APPLY_FAILED
    _containerd(short)


def test_no_daemon_is_told_with_what_to_do(possible: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none")
    from kit.image.places import Places

    with pytest.raises(KitError) as caught:
        Docker(Places(tmp_path))
    (told,) = caught.value.failures
    assert told.code == "image.daemon"
    assert "--builder buildah" in told.next
    assert caught.value.exit_code == ExitCode.UNREACHABLE


def _containerd(root: Path) -> None:
    """A daemon that was killed leaves the containerd that it started; it says which in its folder."""
    for path in (root / "exec").rglob("containerd.pid"):
        with contextlib.suppress(ProcessLookupError, ValueError):
            os.kill(int(path.read_text()), signal.SIGTERM)
