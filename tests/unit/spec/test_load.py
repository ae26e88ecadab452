"""Bad fleets: a clear error at the right line, all of them at once, and nothing of it used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kit.errors import KitError
from kit.spec import commands
from kit.spec.load import load_examples, load_fleet, load_fleets, load_usable

from .conftest import SHIPPED, Edit, example_fleet, failures_of


def test_the_shipped_example_is_the_documented_node_and_nobodys_host() -> None:
    fleet = load_fleet(SHIPPED)
    assert fleet.hosts == {}
    spec = load_examples(fleet, {})["example"]
    assert (spec.gpus.count, spec.gpus.sms, spec.gpus.compute_capability, spec.gpus.memory_mib) == (4, 148, "10.3", 275040)
    assert (spec.gpus.power_limit_w, spec.gpus.sm_clock_mhz) == (1100, 2032)
    assert (spec.cpu.packages, spec.cpu.physical_cores) == (2, 128)
    assert (spec.cpu.fast_cores.count, spec.cpu.fast_cores.mhz, spec.cpu.fast_cores.slow_mhz) == (16, 4600, 2300)
    assert (spec.memory.hicache.ratio, spec.memory.hicache.write_policy) == (2, "write_through_selective")
    assert spec.connection.address.startswith("192.0.2.")


@pytest.mark.parametrize(
    ("old", "new", "code", "key", "step"),
    [
        ("  sms: 148", "  smss: 148", "spec.unknown_key", "gpus.smss", "did you mean 'sms'?"),
        ("  fast_cores: #", "  fast_cors: #", "spec.unknown_key", "cpu.fast_cors", "did you mean 'fast_cores'?"),
        ("power_limit_w: 1100", "power_limit_w: 1.1kW", "spec.wrong_unit", "gpus.power_limit_w", "write `power_limit_w: 1100`"),
        ("shm_gib: 32", "shm_gib: 32GiB", "spec.wrong_unit", "memory.shm_gib", "write `shm_gib: 32`"),
        ("shm_gib: 32", "shm_gib: 32G", "spec.wrong_unit", "memory.shm_gib", "give the number alone, in GiB"),
        ("mhz: 4600", "mhz: 4.6GHz", "spec.wrong_unit", "cpu.fast_cores.mhz", "write `mhz: 4600`"),
        ("memlock_kib: unlimited", "memlock_kib: 64MiB", "spec.wrong_unit", "memory.memlock_kib", "write `memlock_kib: 65536`"),
        ("  sms: 148", "  sms:", "spec.missing_value", "gpus.sms", "fill in `sms`"),
        ("  sms: 148 ", "  ", "spec.missing_key", "gpus.sms", "add `sms:`"),
        ("  sms: 148", '  sms: "148"', "spec.wrong_type", "gpus.sms", "write 148 without quotes"),
        ("  sms: 148", "  sms: 148.5", "spec.wrong_type", "gpus.sms", ""),
        ("  sms: 148", "  sms: true", "spec.wrong_type", "gpus.sms", ""),
        ("  sms: 148", "  sms: -1", "spec.out_of_range", "gpus.sms", ""),
        ('"10.3"', "10.3", "spec.wrong_type", "gpus.compute_capability", 'write it in quotes: "10.3"'),
        ("persistence: true", 'persistence: "true"', "spec.wrong_type", "gpus.persistence", "write true or false without quotes"),
        ("mig: false", "mig: no", "yaml.ambiguous", "gpus.mig", 'write true or false, or "no" in quotes when text is meant'),
        ('"580.65.06"', '"latest"', "spec.bad_text", "gpus.driver.minimum", "/sys/module/nvidia/version"),
        ("manage: check", "manage: instal", "spec.bad_choice", "gpus.driver.manage", "did you mean 'install'?"),
        ("192.0.2.1/32", "192.0.2.1/24", "spec.wrong_type", "network.engine.from[0]", "clear the host bits: 192.0.2.0/24"),
        ("schema_version: 1", "schema_version: 2", "spec.bad_choice", "schema_version", ""),
        ("    - docker.io", "    - docker-ce", "spec.lock_entry", "packages", ""),
    ],
)
def test_one_mistake_one_failure(fleet: Path, edit: Edit, old: str, new: str, code: str, key: str, step: str) -> None:
    edit((old, new))
    failures = failures_of(fleet)
    assert [failure.code for failure in failures] == [code], failures
    assert failures[0].where.endswith(" " + key)
    assert step in failures[0].next
    assert failures[0].expected
    assert failures[0].found


def test_the_line_is_the_mistakes_line(fleet: Path, edit: Edit) -> None:
    edit(("sms: 148", "sms: many"))
    line = next(n for n, text in enumerate((fleet / "hosts/example.yml").read_text().splitlines(), 1) if "sms: many" in text)
    assert failures_of(fleet)[0].where == f"{fleet}/hosts/example.yml:{line} gpus.sms"


HOSTILE = [
    ("user: operator", "user: {}", "connection.user"),
    ("address: 192.0.2.10", "address: {}", "connection.address"),
    ("name: example", "name: {}", "name"),
    ("service_user: b300kit", "service_user: {}", "service_user"),
    ("data_dir: /var/lib/b300kit", "data_dir: {}", "data_dir"),
    ("image: b300", "image: {}", "image"),
    ("# identity_file: ~/.ssh/b300", "identity_file: {}", "connection.identity_file"),
    ("    - containerd\n", "    - {}\n", "packages.hold[1]"),
    ("model: NVIDIA B300 SXM6 AC", "model: {}", "gpus.model"),
]
VALUES = [
    "$(reboot)",
    "a;id",
    "`id`",
    "../../etc/passwd",
    "-oProxyCommand=id",
    "a\\nb",
    "a\\u0000b",
    "%h",
    "{{ 7 * 7 }}",
    "a'b",
    "é",
]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(("old", "new", "key"), HOSTILE)
def test_hostile_text_is_refused_where_it_stands(fleet: Path, edit: Edit, old: str, new: str, key: str, value: str) -> None:
    edit((old, new.format(f'"{value}"')))
    found = {failure.where.rpartition(" ")[2]: failure for failure in failures_of(fleet)}
    assert found[key].code == "spec.bad_text"
    assert found[key].found.isprintable()


def test_every_failure_of_every_file_at_once(fleet: Path, edit: Edit, tmp_path: Path) -> None:
    edit(("sms: 148", "smss: 148"), ("shm_gib: 32", "shm_gib: 32GiB"))
    edit(("driver: null", "drivr: null"), file="lock.yml")
    edit(("forks: 16", "forks: many"), file="fleet.yml")
    (fleet / "hosts/second.yml").write_text("a: [")
    (fleet / "hosts/third.yaml").write_text("")
    with pytest.raises(KitError) as caught:
        load_fleets([fleet, tmp_path / "none"])
    codes = {failure.code for failure in caught.value.failures}
    assert codes == {"spec.unknown_key", "spec.wrong_unit", "spec.wrong_type", "yaml.syntax", "spec.file_name", "spec.no_fleet"}


def test_a_tag_a_duplicate_and_a_merge_are_refused_in_a_host_file(fleet: Path, edit: Edit) -> None:
    edit(("  sms: 148", "  sms: !!python/object/apply:os.system [id]\n  count: 4"))
    assert {failure.code for failure in failures_of(fleet)} == {"yaml.tag", "yaml.duplicate_key"}


def test_a_link_out_of_the_folder_is_not_followed(fleet: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.yml"
    (fleet / "hosts/example.yml").rename(outside)
    (fleet / "hosts/example.yml").symlink_to(outside)
    assert "spec.outside" in {failure.code for failure in failures_of(fleet)}


def test_something_else_than_a_file_is_refused_at_once(fleet: Path) -> None:
    (fleet / "hosts/example.yml").unlink()
    os.mkfifo(fleet / "hosts/example.yml")
    assert "spec.not_a_file" in {failure.code for failure in failures_of(fleet)}


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"\xff\xfe", "yaml.encoding"),
        (b"", "spec.empty"),
        (b"# only\n", "spec.empty"),
        (b"- 1\n", "spec.wrong_type"),
        (b"x" * 300_000, "yaml.size"),
    ],
)
def test_files_that_are_no_spec(fleet: Path, data: bytes, code: str) -> None:
    (fleet / "hosts/example.yml").write_bytes(data)
    assert [failure.code for failure in failures_of(fleet)] == [code]


def test_a_missing_lock_is_said(fleet: Path) -> None:
    (fleet / "lock.yml").unlink()
    assert [failure.code for failure in failures_of(fleet)] == ["spec.no_file"]


def test_editors_leftovers_are_left_alone(fleet: Path) -> None:
    for name in (".example.yml.swp", "example.yml~", "example.yml.bak"):
        (fleet / "hosts" / name).write_text("[")
    assert list(load_fleet(fleet).hosts) == ["example"]


def test_two_fleets_with_one_name_are_refused(fleet: Path, tmp_path: Path) -> None:
    with pytest.raises(KitError) as caught:
        load_fleets([example_fleet(tmp_path / "other"), fleet])
    assert [failure.code for failure in caught.value.failures] == ["spec.two_fleets"]


def test_two_hosts_of_one_address_are_both_unusable_and_a_third_is_not(fleet: Path) -> None:
    """Which of the two is meant by it cannot be told."""
    text = (fleet / "hosts/example.yml").read_text()
    (fleet / "hosts/second.yml").write_text(text.replace("name: example", "name: second"))
    third = text.replace("name: example", "name: third").replace("192.0.2.10", "192.0.2.11")
    (fleet / "hosts/third.yml").write_text(third)
    [reading] = load_usable([fleet])
    assert (sorted(reading.broken), list(reading.fleet.hosts)) == (["example", "second"], ["third"])


def test_fleet_check_tells_lock_engine_and_image_in_the_round_that_tells_the_gaps(fleet: Path, edit: Edit) -> None:
    edit(
        ("sms: 148", "sms: null"),
        ("engine: production", "engine: producton"),
        ("    - docker.io\n", "    - docker.io\n    - new-driver\n"),
    )
    codes = sorted(f.code for f in commands.check([fleet]).failures)
    assert codes == ["spec.lock_entry", "spec.missing_value", "spec.unknown_engine"]
