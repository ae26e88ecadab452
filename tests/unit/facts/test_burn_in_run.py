"""The command on the control machine: what is kept, for how long, and what is refused before a host is asked."""

from __future__ import annotations

import getpass
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from kit.apply.ssh import Remote
from kit.errors import ExitCode, KitError
from kit.facts import burn_in_run
from kit.facts.burn_in_model import MeasuredBurnIn
from kit.facts.collect import with_measured
from kit.facts.measured_cache import load_burn_in, place, store_burn_in
from kit.facts.unknown import is_known
from kit.spec.model import FleetFile, HostSpec, Lock
from kit.spec.target import Target
from tests.hosts import build

from .loopback_sshd import Server
from .test_burn_in import measured

needs_root = pytest.mark.skipif(getpass.getuser() != "root", reason="a login as root needs no sudo, which this machine may lack")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("B300KIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def target() -> Target:
    spec = HostSpec.model_validate(yaml.safe_load((build.HERE / "seed-b300" / "spec.yml").read_text()))
    return Target(spec, Lock(schema_version=1, driver=None, fabric_manager=None), FleetFile(schema_version=1), Path("x.yml"))


def host_says(monkeypatch: pytest.MonkeyPatch, document: dict[str, Any]) -> None:
    """The host runs a script that prints this instead of loading its GPUs; ssh and all else are real."""
    script = f"print({json.dumps(document)!r})".encode()
    monkeypatch.setattr(burn_in_run, "burn_in_script", lambda: script)


@needs_root
def test_what_was_measured_is_kept_and_joins_the_facts(target: Target, sshd: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    host_says(monkeypatch, {"measured": measured()})
    burn_in_run.burn_in(target, build.facts(), sshd.remote())
    found = with_measured(build.facts(), target.name).burn_in
    assert (found.nccl_all_reduce_gbps, found.nvlink_gbps, found.hbm_ok) == (650.0, 780.0, True)
    assert not is_known(with_measured(build.facts(), "another").burn_in.measured)


@needs_root
def test_the_host_gets_the_declared_library(target: Target, sshd: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    burn_in = target.spec.burn_in.model_copy(update={"nccl_library": "/opt/nccl/libnccl.so.2"})
    named = Target(target.spec.model_copy(update={"burn_in": burn_in}), target.lock, target.fleet, target.source)
    script = b"import base64, json, sys\nprint(json.dumps({'refused': [base64.b64decode(sys.argv[1]).decode()]}))"
    monkeypatch.setattr(burn_in_run, "burn_in_script", lambda: script)
    with pytest.raises(KitError) as caught:
        burn_in_run.burn_in(named, build.facts(), sshd.remote())
    assert json.loads(caught.value.failures[0].found) == {"nccl_library": "/opt/nccl/libnccl.so.2", "timeout_s": 180.0}


@needs_root
def test_every_reason_of_the_host_is_a_failure_and_nothing_is_kept(
    target: Target, sshd: Server, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    host_says(monkeypatch, {"refused": ["its engine runs", "GPU 0 has work: process 7"]})
    with pytest.raises(KitError) as caught:
        burn_in_run.burn_in(target, build.facts(), sshd.remote())
    assert caught.value.exit_code is ExitCode.REFUSED
    assert [f.found for f in caught.value.failures] == ["its engine runs", "GPU 0 has work: process 7"]
    assert not cache.exists()


def test_a_host_without_a_gpu_stack_is_not_asked(target: Target) -> None:
    nowhere = Remote(target.spec.connection, target.name)
    bare = build.facts(gpu={"unknown": "no NVIDIA driver or library on this host"})
    with pytest.raises(KitError) as caught:
        burn_in_run.burn_in(target, bare, nowhere)
    assert (caught.value.exit_code, caught.value.failures[0].code) == (ExitCode.REFUSED, "burn_in.no_gpu")
    assert "absent" in caught.value.failures[0].next


@needs_root
def test_a_reboot_meanwhile_is_told_and_nothing_is_kept(
    target: Target, sshd: Server, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    host_says(monkeypatch, {"measured": measured(boot_id="another")})
    with pytest.raises(KitError) as caught:
        burn_in_run.burn_in(target, build.facts(), sshd.remote())
    assert caught.value.failures[0].code == "burn_in.rebooted"
    assert not cache.exists()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"boot_id": 1}'])
def test_a_damaged_file_is_no_burn_in(content: str) -> None:
    run = MeasuredBurnIn.model_validate(measured())
    store_burn_in("node", run).write_text(content)
    assert load_burn_in("node", run.boot_id) is None


def test_a_burn_in_of_another_boot_under_this_name_is_none() -> None:
    run = MeasuredBurnIn.model_validate(measured())
    other = run.boot_id.replace(run.boot_id[:2], "00", 1)
    store_burn_in("node", run).rename(place("node", other, "burn-in"))
    assert load_burn_in("node", other) is None
    assert load_burn_in("node", run.boot_id) is None
