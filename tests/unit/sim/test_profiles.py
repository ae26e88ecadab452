"""Profiles: each one loads, differs from the healthy one where it says so, and a wrong one is refused with its file's name."""

from __future__ import annotations

import pytest
import yaml
from pydantic import ValidationError

from kit.errors import ExitCode, KitError
from kit.sim.hardware import profile as profiles

REQUIRED = {
    "b300-4",
    "gb300-4",
    "b300-3",
    "mig-on",
    "remap-failed",
    "fabric-in-progress",
    "driver-mismatch",
    "pct-off",
    "ambiguous-cores",
    "low-ram",
    "persistence-lost",
}


def test_every_promised_profile_is_there_and_loads():
    assert set(profiles.names()) >= REQUIRED
    for name in profiles.names():
        loaded = profiles.load(name)
        assert len(loaded.gpus) == loaded.gpu_count


@pytest.mark.parametrize(
    ("name", "gpu", "key", "value"),
    [
        ("gb300-4", 0, "sms", 152),
        ("gb300-4", 3, "cores", 152 * 128),
        ("mig-on", 2, "mig_current", 1),
        ("mig-on", 1, "mig_current", 0),
        ("remap-failed", 1, "remap_failed", 1),
        ("remap-failed", 0, "remap_failed", 0),
        ("fabric-in-progress", 0, "fabric_state", 2),
        ("persistence-lost", 0, "power_limit_mw", 1_000_000),
        ("b300-4", 3, "numa_node", 1),
    ],
)
def test_what_a_profile_changes(name: str, gpu: int, key: str, value: int):
    assert getattr(profiles.load(name).gpus[gpu], key) == value


def test_the_rest_of_a_faulty_profile_is_the_healthy_one():
    healthy, faulty = profiles.load("b300-4"), profiles.load("mig-on")
    assert faulty.gpus[0] == healthy.gpus[0]
    assert faulty.cpu == healthy.cpu
    assert faulty.memory_limit_mib is healthy.memory_limit_mib is None


def test_host_wide_faults():
    assert profiles.load("b300-3").gpu_count == 3
    assert profiles.load("low-ram").memory_limit_mib == 1024
    mismatch = profiles.load("driver-mismatch").driver
    assert mismatch.module != mismatch.library
    assert mismatch.init_error == 18
    assert profiles.load("pct-off").cpu.turbo_freq == "unsupported"
    assert profiles.load("ambiguous-cores").cpu.smear is True


def test_an_unknown_profile_names_those_there_are():
    with pytest.raises(KitError) as caught:
        profiles.load("b300-5")
    assert caught.value.exit_code is ExitCode.USAGE
    assert "b300-4" in caught.value.failures[0].expected
    assert caught.value.failures[0].found == "b300-5"


def _healthy_document() -> dict:
    return yaml.safe_load((profiles.PROFILES / "b300-4.yml").read_text())


@pytest.mark.parametrize(
    "change",
    [
        {"colour": "red"},
        {"memory_limit_mib": 12},
        {"gpu": {**_healthy_document()["gpu"], "sms": "many"}},
        {"gpu": {**_healthy_document()["gpu"], "name": "two\nlines"}},
        {"cpu": {**_healthy_document()["cpu"], "fast_positions": [[1]]}},
        {"cpu": {**_healthy_document()["cpu"], "fast_positions": [[1], [64]]}},
    ],
)
def test_a_wrong_document_is_refused(change: dict):
    with pytest.raises(ValidationError):
        profiles.expand({**_healthy_document(), **change})


def test_profiles_in_a_circle_are_refused(tmp_path, monkeypatch):
    (tmp_path / "a.yml").write_text("base: b\n")
    (tmp_path / "b.yml").write_text("base: a\n")
    monkeypatch.setattr(profiles, "PROFILES", tmp_path)
    with pytest.raises(KitError, match="circle"):
        profiles.load("a")


def test_facts_file_has_one_line_a_fact():
    text = profiles.gpu_facts(profiles.load("b300-3"))
    lines = dict(line.split(" ", 1) for line in text.splitlines())
    assert lines["system.count"] == "3"
    assert lines["gpu.2.sms"] == "148"
    assert "gpu.3.sms" not in lines
