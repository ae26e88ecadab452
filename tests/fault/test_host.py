"""A host that cannot be read, through the command line: exit 7, the one cause named, and nothing changed there."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cli import OnHost, Ran, edit, fleet_of, invoke, look

pytestmark = pytest.mark.sim


@pytest.fixture
def fleet(names: tuple[str, str], tmp_path: Path) -> Path:
    """A fleet folder of the two that this test may change."""
    return fleet_of(tmp_path / "fleet", names)


def refused(fleet: Path, name: str, runs: Path) -> Ran:
    """A provision that must end at the host's door; the record is whole."""
    ran = invoke("provision", "--host", name, B300KIT_FLEET=fleet, B300KIT_RUNS=runs)
    assert (ran.code, ran.ends()) == (7, {name: 7})
    (failure,) = ran.document["failures"]
    assert failure["where"].startswith(name)
    assert failure["next"]
    assert invoke("record.verify", B300KIT_RUNS=runs).code == 0
    return ran


def test_another_host_key_is_not_talked_to(names: tuple[str, str], fleet: Path, on_host: OnHost, tmp_path: Path) -> None:
    """Though the address answers, the login would work, and an open connection of an earlier command could be ridden on."""
    name, other = names
    assert invoke("probe", "--host", name, B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs").code == 0
    before = look(on_host, name)
    key = yaml.safe_load((fleet / "hosts" / f"{other}.yml").read_text())["connection"]["host_key"]
    edit(fleet, name, lambda spec: spec["connection"].update(host_key=key))
    failure = refused(fleet, name, tmp_path / "runs").document["failures"][0]
    assert failure["code"] == "ssh.host_key"
    assert failure["expected"].startswith("the pinned key, SHA256:")
    assert failure["found"].startswith("another key, SHA256:")
    assert look(on_host, name) == before


def test_a_user_who_may_not_sudo(names: tuple[str, str], fleet: Path, on_host: OnHost, tmp_path: Path) -> None:
    name = names[0]
    keys = "install -o nosudo -m 600 /home/ops/.ssh/authorized_keys /home/nosudo/.ssh/authorized_keys"
    on_host(name, f"sudo sh -c 'useradd -m nosudo && install -d -o nosudo -m 700 /home/nosudo/.ssh && {keys}'")
    try:
        before = look(on_host, name)
        edit(fleet, name, lambda spec: spec["connection"].update(user="nosudo"))
        failure = refused(fleet, name, tmp_path / "runs").document["failures"][0]
        assert failure["code"] == "host.sudo"
        assert "/etc/sudoers.d" in failure["next"]
        assert look(on_host, name) == before
    finally:
        on_host(name, "sudo sh -c 'loginctl terminate-user nosudo; userdel -rf nosudo'", check=False)


def test_a_host_without_python(names: tuple[str, str], fleet: Path, on_host: OnHost, tmp_path: Path) -> None:
    name = names[0]
    on_host(name, "sudo mv /usr/bin/python3 /usr/bin/python3.away")
    try:
        before = look(on_host, name)
        failure = refused(fleet, name, tmp_path / "runs").document["failures"][0]
        assert failure["code"] == "host.python"
        assert failure["next"] == "apt install python3 on the host"
        assert look(on_host, name) == before
    finally:
        on_host(name, "sudo mv /usr/bin/python3.away /usr/bin/python3")
