"""A model onto a simulated host: sent once, goes on where it was cut, looked at by sample or in full, never over another."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.image import weights
from kit.outcome import Outcome
from kit.spec.pick import pick
from kit.spec.target import Target

PLACE = "/var/lib/b300kit/models/m"
OnHost = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    (folder / "draft").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(random.Random(1).randbytes(5_000_000))
    (folder / "draft" / "model.safetensors").write_bytes(random.Random(2).randbytes(3_000_000))
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def target(sim_host: Callable[[str], str], on_host: OnHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Target:
    monkeypatch.setenv("B300KIT_RUNS", str(tmp_path / "runs"))
    name = sim_host("b300-4")
    on_host(name, f"sudo rm -rf {PLACE}")
    return pick(name)[0]


def codes(outcome: Outcome) -> list[str]:
    return [failure.code for host in outcome.hosts.values() for failure in host.failures]


def sent(outcome: Outcome) -> int:
    (host,) = outcome.hosts.values()
    return int(host.result["sent_bytes"])


@pytest.mark.timeout(600)
def test_a_model_is_sent_once_goes_on_where_it_was_cut_and_a_flipped_bit_is_found(
    target: Target, source: Path, on_host: OnHost
) -> None:
    outcome = weights.push([target], str(source), "m")
    assert (codes(outcome), sent(outcome)) == ([], 8_000_002)
    assert codes(weights.verify([target], str(source), "m", full=True)) == []
    again = weights.push([target], str(source), "m")
    assert (codes(again), sent(again)) == ([], 0)

    # Cut: a file is half there under its other name.
    on_host(target.name, f"cd {PLACE} && sudo mv model.safetensors model.safetensors.b300kit-partial")
    on_host(target.name, f"cd {PLACE} && sudo truncate -s 1234567 model.safetensors.b300kit-partial && sudo touch mark")
    on_host(target.name, f"cd {PLACE} && sudo rm mark")
    before = on_host(target.name, f"stat -c %i {PLACE}/model.safetensors.b300kit-partial").stdout
    outcome = weights.push([target], str(source), "m")
    assert codes(outcome) == []
    assert on_host(target.name, f"stat -c %i {PLACE}/model.safetensors").stdout == before, "the same file, gone on with"

    # A bit flips in the middle: the quick look cannot see it, the full one does.
    on_host(target.name, f"printf x | sudo dd of={PLACE}/model.safetensors bs=1 seek=2500000 conv=notrunc status=none")
    assert codes(weights.verify([target], str(source), "m", full=False)) == []
    outcome = weights.verify([target], str(source), "m", full=True)
    assert codes(outcome) == ["weights.file"]
    assert outcome.hosts[target.name].exit_code == ExitCode.GATE_FAILED


@pytest.mark.timeout(600)
def test_what_was_sent_wrong_is_removed_and_sent_again(target: Target, source: Path, on_host: OnHost) -> None:
    partial = f"{PLACE}/config.json.b300kit-partial"
    on_host(target.name, f"sudo mkdir -p {PLACE} && printf xx | sudo tee {partial} >/dev/null")
    outcome = weights.push([target], str(source), "m")
    assert outcome.hosts[target.name].exit_code == ExitCode.APPLY_FAILED
    assert "removed: run again" in outcome.hosts[target.name].failures[0].found
    assert on_host(target.name, f"ls {partial}", check=False).returncode != 0
    assert codes(weights.push([target], str(source), "m")) == []


@pytest.mark.timeout(300)
def test_another_model_under_that_name_is_never_overwritten(target: Target, source: Path, on_host: OnHost) -> None:
    on_host(target.name, f"sudo mkdir -p {PLACE} && echo other | sudo tee {PLACE}/config.json >/dev/null")
    outcome = weights.push([target], str(source), "m")
    assert (codes(outcome), outcome.hosts[target.name].exit_code) == (["weights.other"], ExitCode.REFUSED)
    assert on_host(target.name, f"cat {PLACE}/config.json").stdout == "other\n"
    on_host(target.name, f"sudo rm {PLACE}/config.json && sudo touch {PLACE}/stranger")
    assert codes(weights.push([target], str(source), "m")) == ["weights.other"]


def test_too_little_room_is_refused_before_anything_is_sent(
    target: Target, source: Path, on_host: OnHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights, "ROOM", 10**8)
    outcome = weights.push([target], str(source), "m")
    assert codes(outcome) == ["weights.no_space"]
    assert on_host(target.name, f"ls -d {PLACE}", check=False).returncode != 0


def test_a_source_without_files_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(KitError) as caught:
        weights.manifest(tmp_path / "nothing")
    assert caught.value.exit_code == ExitCode.USAGE
