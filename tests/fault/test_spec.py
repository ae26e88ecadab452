"""A wrong declaration, through the command line: exit 2, told where it stands, before any host is called or a record begun."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.spec.conftest import Edit

from .conftest import Call

WRONG = {
    "an unknown key": ("  sms: 148", "  smss: 148", "spec.unknown_key", "gpus.smss", "did you mean 'sms'?"),
    "a wrong unit": (
        "power_limit_w: 1100",
        "power_limit_w: 1.1kW",
        "spec.wrong_unit",
        "gpus.power_limit_w",
        "power_limit_w: 1100",
    ),
    "a duplicate key": ("  sms: 148", "  sms: 148\n  sms: 152", "yaml.duplicate_key", "gpus.sms", "keep one"),
    "shell metacharacters": ("service_user: b300kit", 'service_user: "$(reboot)"', "spec.bad_text", "service_user", ""),
    "path traversal": ("data_dir: /var/lib/b300kit", "data_dir: /var/lib/../../etc", "spec.bad_text", "data_dir", ""),
    "an option for ssh": ("address: 127.0.0.1", 'address: "-oProxyCommand=id"', "spec.bad_text", "connection.address", ""),
    "a template for Ansible": ("image: b300", 'image: "{{ 7 * 7 }}"', "spec.bad_text", "image", ""),
    "a name that is not ASCII": ("name: example", "name: exämple", "spec.bad_text", "name", ""),
}


@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_value_is_told_at_its_place(refused: Call, edit: Edit, fleet: Path, kind: str) -> None:
    old, new, code, key, step = WRONG[kind]
    edit((old, new))
    ran = refused("provision", "--host", "example")
    (failure,) = ran.document["failures"]
    assert failure["code"] == code
    file, _, place = failure["where"].rpartition(" ")
    lines = (fleet / "hosts/example.yml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if new.split("\n")[-1] in text)
    assert (file, place) == (f"{str(fleet).lstrip('/')}/hosts/example.yml:{line}", key)
    assert step in failure["next"]


def test_a_yaml_tag_runs_nothing(refused: Call, edit: Edit, tmp_path: Path) -> None:
    edit(("  sms: 148", f'  sms: !!python/object/apply:os.system ["touch {tmp_path}/pwned"]'))
    assert "yaml.tag" in refused("provision", "--host", "example").codes
    assert not (tmp_path / "pwned").exists()


def test_all_wrongs_of_all_files_are_told_at_once(refused: Call, edit: Edit) -> None:
    edit(("  sms: 148", "  smss: 148"), ("shm_gib: 32", "shm_gib: 32GiB"))
    edit(("driver: null", "drivr: null"), file="lock.yml")
    ran = refused("provision", "--host", "example")
    assert sorted(ran.codes) == ["spec.unknown_key", "spec.unknown_key", "spec.wrong_unit"]
    assert {Path(f["where"].partition(":")[0]).name for f in ran.document["failures"]} == {"example.yml", "lock.yml"}


def test_an_empty_file_a_huge_one_and_what_is_no_text(refused: Call, fleet: Path) -> None:
    host = fleet / "hosts/example.yml"
    good = host.read_bytes()
    bad = {
        b"": "spec.empty",
        b"a: b\n" * (10 << 20): "yaml.size",
        good.decode().encode("utf-16"): "yaml.encoding",
        good + b"\0": "yaml.syntax",
    }
    for data, code in bad.items():
        host.write_bytes(data)
        assert refused("plan", "--host", "example").codes == [code]


def test_a_circle_of_links_and_what_is_no_folder_are_no_empty_fleet(refused: Call, fleet: Path) -> None:
    hosts = fleet / "hosts"
    (fleet / "fleet.yml").write_text("schema_version: 1\n")
    host = hosts / "example.yml"
    host.unlink()
    host.symlink_to(host.name)
    assert refused("fleet.check").codes == ["spec.unreadable"]
    host.unlink()
    hosts.rmdir()
    for spoil in (lambda: hosts.symlink_to("hosts"), lambda: hosts.symlink_to("gone"), lambda: hosts.write_text("")):
        spoil()
        assert refused("fleet.check").codes == ["spec.unreadable"]
        assert refused("plan", "--host", "all").codes == ["spec.unreadable"]
        hosts.unlink()


def test_a_fleet_without_hosts_is_valid_and_nothing_to_work_on(refused: Call, fleet: Path, tmp_path: Path) -> None:
    (fleet / "hosts/example.yml").unlink()
    (fleet / "fleet.yml").write_text("schema_version: 1\n")
    assert refused("provision", "--host", "all").codes == ["cli.no_host"]
    assert refused("provision", "--host", "example").codes == ["cli.unknown_host"]
    for file in ("fleet.yml", "lock.yml"):
        (fleet / file).unlink()
    assert refused("provision", "--host", "all").codes == ["spec.no_file"] * 2
    fleet.rename(tmp_path / "away")
    assert refused("provision", "--host", "all").codes == ["spec.no_fleet"]


def test_names_of_any_script_and_of_no_encoding(refused: Call, fleet: Path) -> None:
    assert refused("plan", "--host", "exämple", LC_ALL="C").document["failures"][0]["next"] == "did you mean 'example'?"
    assert refused("plan", "--host", os.fsdecode(b"\xff")).codes == ["cli.unknown_host"]
    (fleet / "fleet.yml").write_text("schema_version: 1\n")
    (fleet / "hosts/example.yml").rename(fleet / "hosts" / os.fsdecode(b"ex\xff.yml"))
    assert refused("plan", "--host", "all").codes == ["spec.file_name"]
