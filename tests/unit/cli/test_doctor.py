"""What the doctor makes of what it sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit import doctor
from kit.errors import ExitCode, failure

GAP = failure("sim.requirement", "qemu on this machine", "installed", "not found", "apt-get install qemu")


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("OpenSSH_9.2p1 Debian-2+deb12u3, OpenSSL 3.0.11", (9, 2)),
        ("OpenSSH_8.4p1 Debian-5", (8, 4)),
        ("OpenSSH_10.0p2, OpenSSL 3.5", (10, 0)),
        ("Dropbear v2022.83", None),
    ],
)
def test_ssh_versions(text: str, version: tuple[int, int] | None) -> None:
    assert doctor.ssh_version(text) == version


def test_a_gap_of_the_simulator_is_told_but_real_hosts_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("B300KIT_CACHE", str(tmp_path))
    outcome = doctor.examine({"nspawn": [], "qemu": [GAP]})
    assert outcome.exit_code == ExitCode.OK
    assert any("qemu" in line and "apt-get install qemu" in line for line in outcome.skipped)
    assert "NOT ready for simulation with qemu" in outcome.text
    assert "ready for simulation with nspawn" in outcome.text


def test_what_real_hosts_need_and_is_missing_fails(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    outcome = doctor.examine({})
    assert outcome.exit_code == ExitCode.USAGE
    assert [f.code for f in outcome.failures] == ["doctor.ssh"]
    assert "NOT ready for hosts" in outcome.text


def test_it_creates_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("B300KIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("B300KIT_RUNS", str(tmp_path / "runs"))
    doctor.examine({})
    assert list(tmp_path.iterdir()) == []
