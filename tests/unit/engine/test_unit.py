"""The engine's files on a host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kit import paths
from kit.cores.model import Assignment, Seat
from kit.engine.load import load_profile
from kit.engine.unit import CLOSED, KEY_FILE, SETTINGS, EngineFiles, Image, engine_files, quoted
from kit.spec.load import load_host

HOST = load_host(paths.ROOT / "fleet" / "examples" / "example.yml")
IMAGE = Image(
    "sha256:abcdef0123456789aa", "/var/lib/b300kit/images/x/rootfs", "/opt/engine/bin/python", 10001, "engine", "/var/lib/engine"
)
SEATS = tuple(
    Seat(name=f"scheduler {rank}", core=rank, cpus=(rank, rank + 128), node=0, gpu=rank, fast=True, near_gpu=True, reason="x")
    for rank in range(4)
)
ASSIGNMENT = Assignment(
    schedulers=SEATS,
    detokenizer=None,
    tokenizer=None,
    rest_cpus=(64, 65),
    os_cpus=(126, 127),
    serving_cpus=(0, 1, 2, 3, 64, 65),
    reason="x",
)


def made(profile: str) -> EngineFiles:
    return engine_files(HOST, load_profile(profile, [paths.ROOT / "fleet"]), IMAGE, "serve", ASSIGNMENT, "580.95")


def text(profile: str, path: str) -> str:
    return next(f.content for f in made(profile).files if f.path.endswith(path))


@pytest.mark.parametrize("profile", ["production", "cpu-tiny"])
def test_the_port_is_closed_before_the_start_and_after_the_stop(profile: str) -> None:
    unit = text(profile, "b300kit-engine.service")
    assert f"ExecStartPre=+/usr/sbin/nft --file {CLOSED}" in unit
    assert f"ExecStopPost=+/usr/sbin/nft --file {CLOSED}" in unit
    assert unit.index("ExecStartPre=") < unit.index("ExecStart=/")
    assert "tcp dport 30000 drop" in text(profile, "engine-closed.nft")


@pytest.mark.parametrize("profile", ["production", "cpu-tiny"])
def test_it_listens_on_the_private_address_and_holds_no_key(profile: str) -> None:
    unit = text(profile, "b300kit-engine.service")
    assert f"--host {HOST.connection.address} --port 30000" in unit
    assert "api-key " not in unit.replace(KEY_FILE, "").replace("engine-api-key", "")
    assert "--api-key" not in unit


def test_a_root_directory_is_read_only_and_its_credential_systemds() -> None:
    unit = text("cpu-tiny", "b300kit-engine.service")
    for line in (
        f"RootDirectory={IMAGE.root}",
        "ProtectSystem=strict",
        "User=10001",
        f"LoadCredential=engine-api-key:{KEY_FILE}",
    ):
        assert line in unit
    assert "B300KIT_KEY_FILE=%%engine-api-key" in unit


def test_a_container_gets_each_device_by_name_and_no_privilege() -> None:
    unit = text("production", "b300kit-engine.service")
    assert all(f"--device /dev/nvidia{gpu}" in unit for gpu in range(4))
    assert "--privileged" not in unit
    assert "docker.sock" not in unit
    assert "--read-only" in unit
    assert "--cpuset-cpus 0-3,64-65" in unit
    assert "ExecStop=/usr/bin/docker stop --time 120" in unit


def test_seats_and_the_caches_key() -> None:
    settings = json.loads(text("production", SETTINGS))
    assert settings["seats"]["sglang::scheduler_TP3"] == [3, 131]
    assert settings["cache"].endswith("/cache/abcdef0123456789-sm103-580.95")
    assert settings["argv_sha256"] == made("production").command.sha256()


def test_words_as_systemd_reads_them() -> None:
    assert quoted(("a b", "50%", "$HOME", 'say "x"', "")) == '"a b" 50%% $$HOME "say \\"x\\"" ""'


def test_the_script_that_hides_the_key_is_the_one_that_is_shipped() -> None:
    script = (Path(paths.ROOT) / "kit" / "engine" / "inside" / "serve.py").read_text()
    assert "B300KIT_KEY_FILE" in script
    assert "setLogRecordFactory" in script
