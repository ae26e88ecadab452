"""What must hold between the values of a fleet."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kit.spec import commands, publickey
from kit.spec.load import load_fleet

from .conftest import Edit, failures_of


@pytest.mark.parametrize(
    ("pairs", "code", "key"),
    [
        ([("name: example", "name: other")], "spec.file_name", "name"),
        ([("address: 192.0.2.10", 'address: "192.0.2.10:22"')], "spec.address", "connection.address"),
        ([("service_user: b300kit", "service_user: root")], "spec.service_user", "service_user"),
        ([("manage: check", "manage: install")], "spec.driver_packages", "gpus.driver.packages"),
        ([("count: 16", "count: 127")], "spec.cores", "cpu.fast_cores.count"),
        ([("count: 16", "count: 3")], "spec.cores", "cpu.fast_cores.count"),
        ([("slow_mhz: 2300", "slow_mhz: 4600")], "spec.core_clock", "cpu.fast_cores.mhz"),
        ([("    ratio: 2 ", "    size_gib: 2\n    ratio: 2 ")], "spec.hicache", "memory.hicache"),
        ([("    ratio: 2 ", "    #")], "spec.hicache", "memory.hicache"),
        ([("    device_pool_gib: 120\n", "")], "spec.hicache", "memory.hicache"),
        ([("data_root: /var/lib/docker", "data_root: /var/lib/b300kit/docker")], "spec.folders", "docker.data_root"),
        ([("data_root: /var/lib/docker", "data_root: /var/lib/b300kit")], "spec.folders", "docker.data_root"),
        ([("data_dir: /var/lib/b300kit", "data_dir: /etc/b300kit")], "spec.folders", "data_dir"),
        ([("ports: 29000", "ports: 30000")], "spec.ports_overlap", "network.metrics.ports"),
        ([("ports: 28028-28031", "ports: 28028-29000")], "spec.ports_overlap", "network.nccl.ports"),
        ([("ports: 30000", "ports: 22")], "spec.ports_overlap", "network.engine.ports"),
        ([("ports: 30000", "ports: 30001-30000")], "spec.ports", "network.engine.ports"),
        ([("ports: 30000", "ports: 30000-70000")], "spec.ports", "network.engine.ports"),
        ([("[192.0.2.1/32]", "[0.0.0.0/0]")], "spec.open_to_everyone", "network.engine.from"),
        ([("[192.0.2.1/32]", "[0.0.0.0/1, 128.0.0.0/1]")], "spec.open_to_everyone", "network.engine.from"),
        ([("[192.0.2.1/32]", '["::/0"]')], "spec.open_to_everyone", "network.engine.from"),
    ],
)
def test_inconsistent_hosts(fleet: Path, edit: Edit, pairs: list[tuple[str, str]], code: str, key: str) -> None:
    edit(*pairs)
    if code == "spec.file_name":
        edit(("b300: [example]", "b300: []"), file="fleet.yml")
    assert [(failure.code, failure.where.rpartition(" ")[2]) for failure in failures_of(fleet)] == [(code, key)]


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("ssh-ed25519 AAAA", "ssh-ed25519 XXAAAA", "base64"),
        ("ssh-ed25519 AAAA", "ssh-ed25519 XXXXAAAA", "begin with the type"),
        ("ssh-ed25519 AAAA", "ssh-rsa AAAA", "begin with the type"),
        ("AAAAAAAAAAAAAAAAAAAA\n", "AAAAAAAAAAAAAAAA\n", "incomplete"),
        ("AAAAAAAAAAAAAAAAAAAA\n", "AAAAAAAAAAAAAAAAAAAAAAAAAAAA\n", "incomplete"),
        ("AAAAAAAAAAAAAAAAAAAA\n", "AAAAAAAAAAAAAAAAAAA\n", "does not decode"),
    ],
)
def test_a_host_key_is_a_whole_public_key(fleet: Path, edit: Edit, old: str, new: str, found: str) -> None:
    edit((old, new))
    [failure] = failures_of(fleet)
    assert (failure.code, failure.where.rpartition(" ")[2]) == ("spec.host_key", "connection.host_key")
    assert found in failure.found


@pytest.mark.parametrize("kind", ["ed25519", "rsa", "ecdsa"])
def test_keys_as_ssh_makes_them_are_accepted(tmp_path: Path, kind: str) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", str(tmp_path / "k")], check=True)
    assert publickey.problem(" ".join((tmp_path / "k.pub").read_text().split()[:2])) == ""


@pytest.mark.parametrize(
    ("pair", "close"), [(("engine: production", "engine: producton"), "production"), (("image: b300", "image: b3000"), "b300")]
)
def test_an_engine_or_image_that_is_not_there_is_told_with_those_that_are(
    fleet: Path, edit: Edit, pair: tuple[str, str], close: str
) -> None:
    edit(pair)
    [failure] = commands.check([fleet]).failures
    assert (close in failure.expected, failure.next) == (True, f"did you mean {close!r}?")


def test_a_port_is_opened_to_the_world_only_by_saying_so(fleet: Path, edit: Edit) -> None:
    edit(("    from: [192.0.2.1/32]", "    open_to_everyone: true\n    from: [0.0.0.0/0]"))
    assert load_fleet(fleet).hosts["example"].network.engine.open_to_everyone


def test_groups_name_hosts_there_are(fleet: Path, edit: Edit) -> None:
    edit(("[example]", "[exampel, example, example]"), file="fleet.yml")
    failures = failures_of(fleet)
    assert [f.code for f in failures] == ["spec.unknown_host", "spec.duplicate_host"]
    assert "did you mean 'example'?" in failures[0].next


@pytest.mark.parametrize("name", ["example", "all"])
def test_a_group_has_a_name_of_its_own(fleet: Path, edit: Edit, name: str) -> None:
    edit(("b300: [example]", f"{name}: [example]"), file="fleet.yml")
    assert [f.code for f in failures_of(fleet)] == ["spec.group_name"]


def test_two_hosts_at_one_address_are_refused(fleet: Path) -> None:
    text = (fleet / "hosts/example.yml").read_text()
    (fleet / "hosts/second.yml").write_text(text.replace("name: example", "name: second"))
    failures = failures_of(fleet)
    assert [f.code for f in failures] == ["spec.duplicate_address"]
    assert "second.yml" in failures[0].where
    assert "example" in failures[0].found


def test_a_broken_host_is_not_also_an_unknown_group_member(fleet: Path, edit: Edit) -> None:
    edit(("sms: 148", "sms: many"))
    assert [f.code for f in failures_of(fleet)] == ["spec.wrong_type"]
