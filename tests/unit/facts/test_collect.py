"""From a target to typed facts, over a real ssh connection; and the measured speeds that join them."""

from __future__ import annotations

import getpass
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit.errors import ExitCode, KitError
from kit.facts import collect as collecting
from kit.facts import measure
from kit.facts.collect import collect
from kit.facts.measured_cache import load, place, store
from kit.facts.model import Facts, MeasuredCore, MeasuredCores
from kit.facts.request import ProbeRequest
from kit.facts.unknown import Unknown, is_known
from kit.spec.model import FleetFile, HostSpec, Lock
from kit.spec.target import Target
from tests.hosts import build

from .loopback_sshd import Server

BOOT = "4c10a737-aed5-4e03-8a19-766e5937981b"
needs_root = pytest.mark.skipif(getpass.getuser() != "root", reason="a login as root needs no sudo, which this machine may lack")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("B300KIT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def target() -> Target:
    import yaml

    spec = HostSpec.model_validate(yaml.safe_load((build.HERE / "seed-b300" / "spec.yml").read_text()))
    lock = Lock(schema_version=1, driver=None, fabric_manager=None)
    return Target(spec, lock, FleetFile(schema_version=1), Path("seed-b300.yml"))


def speeds(boot_id: str = BOOT, mhz: float = 3000.0) -> MeasuredCores:
    core = MeasuredCore(core_cpu=0, alone_mhz=mhz, loaded_mhz=Unknown(unknown="time ran out"))
    return MeasuredCores(boot_id=boot_id, unit="mhz", cores=(core,))


def test_speeds_are_kept_for_their_boot_only() -> None:
    store("node", speeds(), ("a note",))
    found = load("node", BOOT)
    assert found is not None
    assert found[0].model_dump() == speeds().model_dump() and found[1] == ("a note",)
    assert load("node", BOOT.replace("4", "5")) is None
    assert load("other", BOOT) is None


@pytest.mark.parametrize("content", ["", "{}", '{"measured": 1, "notes": []}'])
def test_a_damaged_cache_is_no_speed(content: str) -> None:
    path = store("node", speeds(), ())
    path.write_text(content)
    assert load("node", BOOT) is None


def test_the_speeds_of_another_boot_under_this_name_are_refused() -> None:
    path = store("node", speeds(), ())
    path.write_text(path.read_text().replace(BOOT, BOOT.replace("4", "5")))
    assert load("node", BOOT) is None


def test_a_cache_that_cannot_be_used_is_told_and_is_not_an_empty_one(cache: Path) -> None:
    cache.mkdir()
    (cache / "measured").write_text("a file where a folder must be")
    for use, code in (
        (lambda: store("node", speeds(), ()), "measured.write"),
        (lambda: load("node", BOOT), "measured.unreadable"),
    ):
        with pytest.raises(KitError) as caught:
            use()
        assert caught.value.failures[0].code == code
        assert "B300KIT_CACHE" in caught.value.failures[0].next
    (cache / "build").write_text("the same")
    assert measure.build() is None


@pytest.mark.parametrize("boot_id", ["../../etc/passwd", "", "a/b", "a b"])
def test_a_boot_id_is_a_file_name(boot_id: str) -> None:
    with pytest.raises(ValueError, match="not a host name and boot id"):
        place("node" if boot_id else "-", boot_id)


@needs_root
def test_facts_come_over_ssh_and_earlier_speeds_join_them(sshd: Server, target: Target) -> None:
    request = ProbeRequest(users=("root",), disks=("/",))
    facts, raw = collect(target, request, sshd.remote("seed-b300"))
    assert not is_known(facts.cpu.measured)
    assert raw["host"]["boot_id"] == facts.host.boot_id
    store(target.name, speeds(facts.host.boot_id), ("relative",))
    again, raw = collect(target, request, sshd.remote("seed-b300"))
    assert is_known(again.cpu.measured) and again.notes[-1] == "relative"
    assert "unknown" in raw["cpu"]["measured"]


@needs_root
@pytest.mark.parametrize(
    ("script", "code"),
    [
        (b"raise SystemExit(2)", "probe.failed"),
        (b"print('[1]')", "probe.json"),
        (b"print('{')", "probe.json"),
        (b"print('{}')", "probe.shape"),
    ],
)
def test_a_probe_at_fault_is_ours_not_the_hosts(
    sshd: Server, target: Target, monkeypatch: pytest.MonkeyPatch, script: bytes, code: str
) -> None:
    monkeypatch.setattr(collecting, "probe_script", lambda: script)
    with pytest.raises(KitError) as caught:
        collect(target, ProbeRequest(), sshd.remote())
    assert caught.value.exit_code is ExitCode.INTERNAL
    assert caught.value.failures[0].code == code


@needs_root
def test_a_python_that_is_too_old_is_the_hosts(sshd: Server, target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    script = collecting.probe_script().replace(b"< (3, 9)", b"< (9, 0)")
    monkeypatch.setattr(collecting, "probe_script", lambda: script)
    with pytest.raises(KitError) as caught:
        collect(target, ProbeRequest(), sshd.remote())
    assert (caught.value.exit_code, caught.value.failures[0].code) == (ExitCode.UNREACHABLE, "host.python")


@needs_root
def test_the_host_alone_says_whether_it_may_be_loaded(
    target: Target, sshd: Server, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    monkeypatch.setattr(measure, "cores_script", lambda program: b'print(\'{"refused": "it is joined to a router"}\')')
    with pytest.raises(KitError) as caught:
        measure.measure_cores(target, build.facts(), sshd.remote())
    assert (caught.value.failures[0].code, caught.value.exit_code) == ("measure.joined", ExitCode.REFUSED)
    assert not (cache / "measured").exists()


def test_the_c_program_is_built_once_and_measures_this_machine() -> None:
    binary = measure.build()
    if binary is None:
        pytest.skip("no C compiler that links statically here")
    assert measure.build() == binary
    usable = sorted(os.sched_getaffinity(0))[:2]
    done = subprocess.run([binary, "10", ",".join(map(str, usable))], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert [core["cpu"] for core in found["cores"]] == usable
    for core in found["cores"]:
        for name in ("alone_mhz", "loaded_mhz"):
            # A chain of one-cycle adds: anything a processor of today can run at, and nothing a wrong count would give.
            assert core[name] is None or 300 < core[name] < 7000


def test_a_short_budget_gives_no_number_rather_than_a_wrong_one() -> None:
    binary = measure.build()
    if binary is None:
        pytest.skip("no C compiler that links statically here")
    done = subprocess.run([binary, "0.001", "0"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["cores"] == [{"cpu": 0, "alone_mhz": None, "loaded_mhz": None}]


@pytest.mark.parametrize("arguments", [[], ["x", "0"], ["1", ""], ["1", "0,x"], ["nan", "0"], ["1", "-1"], ["1", "5000"]])
def test_the_c_program_refuses_other_arguments(arguments: list[str]) -> None:
    binary = measure.build()
    if binary is None:
        pytest.skip("no C compiler that links statically here")
    done = subprocess.run([binary, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""


def test_without_a_compiler_there_is_no_program(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert measure.program() is None


def test_a_compiler_that_cannot_link_statically_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert measure.build() is None
    assert list((cache / "build").iterdir()) == []


def run_cores(program: bytes | None, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    from kit.facts.host import cores

    monkeypatch.setattr(cores, "_WINDOW_S", 0.02)
    usable = sorted(os.sched_getaffinity(0))[:2]
    logical = [{"cpu": cpu, "siblings": [cpu], "online": True, "usable": True} for cpu in usable]
    logical.append({"cpu": 900, "siblings": [900], "online": True, "usable": False})
    found: dict[str, Any] = cores.measure(program, logical, BOOT, 10)
    MeasuredCores.model_validate(found["measured"])
    assert "unknown" in found["measured"]["cores"][-1]["loaded_mhz"]
    return found


def test_the_host_runs_the_program_from_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    carried = measure.program()
    if carried is None:
        pytest.skip("no C compiler that links statically here")
    from kit.facts.host.cores import carried_program

    assert carried["machine"] == platform.machine()
    found = run_cores(carried_program(carried), monkeypatch)
    assert found["measured"]["unit"] == "mhz" and found["notes"] == []
    assert carried_program({**carried, "machine": "another"}) is None


@pytest.mark.parametrize("program", [None, b"no program at all"])
def test_without_a_program_speeds_are_relative_and_it_is_said(program: bytes | None, monkeypatch: pytest.MonkeyPatch) -> None:
    found = run_cores(program, monkeypatch)
    assert found["measured"]["unit"] == "relative"
    assert "relative to the median core" in found["notes"][0]
    ratios = [core["alone_mhz"] for core in found["measured"]["cores"][:-1]]
    assert all(0.2 < ratio < 5 for ratio in ratios)


def test_the_probe_can_be_printed_and_run_by_hand() -> None:
    text = subprocess.run([sys.executable, "-m", "kit.facts.probe"], capture_output=True, check=True).stdout
    request = subprocess.run([sys.executable, "-m", "kit.facts.probe", "--request"], capture_output=True, check=True).stdout
    done = subprocess.run(["python3", "-I", "-", request.decode().strip()], input=text, capture_output=True, check=True)
    assert Facts.model_validate_json(done.stdout).host.boot_id
