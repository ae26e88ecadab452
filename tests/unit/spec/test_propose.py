"""A live host's facts as a proposed spec: what was seen, and what is left to a person."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.errors import KitError
from kit.facts.model import Facts
from kit.spec import commands
from kit.spec.load import load_document, load_host
from kit.spec.model import Connection, HostSpec, Lock
from kit.spec.propose import propose, unlocked
from tests.hosts.build import case, cases, facts

from .conftest import Edit

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
CONNECTION = Connection(address="192.0.2.20", port=2222, user="ops", host_key=KEY)
NAMES = {"image": ["b300", "sim"], "engine": ["baseline", "production"]}
A_PERSONS = {"memory.hicache.device_pool_gib", "image", "engine"}
"""Never on a host: how the engine will be run."""


def filled(text: str, folder: Path) -> HostSpec:
    """The proposal with what a person must give."""
    for key, value in (("device_pool_gib", "100"), ("image", "some-image"), ("engine", "some-engine")):
        text = (
            text.replace(f"{key}: null", f"{key}: {value}", 1)
            if key != "image"
            else text.replace("\nimage: null", f"\nimage: {value}")
        )
    path = folder / "hosts" / "new.yml"
    path.parent.mkdir()
    path.write_text(text)
    return load_host(path)


def test_the_seeds_host_needs_only_what_no_host_can_tell(tmp_path: Path) -> None:
    text, missing = propose(case("seed-b300"), "new", CONNECTION, NAMES)
    assert set(missing) == A_PERSONS
    spec = filled(text, tmp_path)
    assert (spec.gpus.count, spec.gpus.sms, spec.gpus.compute_capability, spec.gpus.memory_mib) == (4, 148, "10.3", 275040)
    assert (spec.gpus.power_limit_w, spec.gpus.sm_clock_mhz, spec.gpus.nvlink, spec.gpus.fabric) == (
        1100,
        2032,
        "all_pairs",
        "completed",
    )
    assert (spec.cpu.packages, spec.cpu.physical_cores) == (2, 128)
    assert (spec.cpu.fast_cores.count, spec.cpu.fast_cores.mhz, spec.cpu.fast_cores.slow_mhz) == (16, 4600, 2300)
    assert spec.connection == CONNECTION
    assert spec.network.engine.from_ == ()


@pytest.mark.parametrize("name", cases())
def test_an_unfilled_proposal_is_refused_at_exactly_what_is_missing(name: str, tmp_path: Path) -> None:
    text, missing = propose(case(name), "new", CONNECTION, NAMES)
    path = tmp_path / "hosts" / "new.yml"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(KitError) as caught:
        load_host(path)
    refused = {failure.where.rpartition(" ")[2] for failure in caught.value.failures}
    # Optional keys may stay empty, and with other failures in the file the ones between keys are not looked for yet.
    optional = {"cpu.fast_cores.slow_mhz", "memory.hicache.device_pool_gib"}
    assert set(missing) - optional <= refused <= set(missing) | {"memory.hicache"}


def test_nothing_known_nothing_guessed() -> None:
    text, missing = propose(case("everything-unknown"), "new", CONNECTION, NAMES)
    assert {
        "gpus.count",
        "gpus.sms",
        "gpus.driver.minimum",
        "cpu.physical_cores",
        "cpu.fast_cores.count",
        "memory.total_gib_min",
    } <= set(missing)
    assert "FILL IN" in text


@pytest.mark.parametrize(
    ("changed", "key", "why"),
    [
        (facts({"gpu.gpus.1.sms": 152}), "gpus.sms", "3 x 148, 1 x 152"),
        (facts({"gpu.gpus.1.sms": {"unknown": "no libcuda"}}), "gpus.sms", "no libcuda"),
        (facts({"gpu.gpus.0.p2p_nvlink.1": False}), "gpus.nvlink", "11 of 12 GPU pairs"),
        (case("ambiguous"), "cpu.fast_cores.count", "different frequencies"),
        (case("flat-no-pct"), "cpu.fast_cores.count", "one frequency"),
    ],
)
def test_what_differs_or_is_unclear_is_left_with_its_reason(changed: Facts, key: str, why: str) -> None:
    text, missing = propose(changed, "new", CONNECTION, NAMES)
    assert key in missing
    [line] = [line for line in text.splitlines() if line.strip().startswith(key.rpartition(".")[2] + ": null") and why in line]
    assert "FILL IN" in line


def test_what_a_host_reports_cannot_add_keys(tmp_path: Path) -> None:
    hostile = "B300\nimage: evil # \x1b[31m"
    changed = facts({f"gpu.gpus.{index}.name": hostile for index in range(4)})
    text, _ = propose(changed, "new", CONNECTION, NAMES)
    assert not any(line.startswith("image: evil") for line in text.splitlines())
    assert "\x1b" not in text
    with pytest.raises(KitError) as caught:
        filled(text, tmp_path)
    assert [failure.where.rpartition(" ")[2] for failure in caught.value.failures] == ["gpus.model"]


def test_the_names_to_choose_from_stand_beside_the_gap() -> None:
    lines = propose(case("seed-b300"), "new", CONNECTION, NAMES)[0].splitlines()
    assert "image: null # FILL IN: one of b300, sim" in lines
    assert "engine: null # FILL IN: one of baseline, production" in lines


def test_what_the_lock_lacks_is_told_and_is_all_that_was_missing(fleet: Path, edit: Edit) -> None:
    """Filled in and with those lines added, the fleet is valid: no second round."""
    edit(("  containerd: null\n", ""), file="lock.yml")
    (fleet / "hosts/example.yml").unlink()
    (fleet / "fleet.yml").write_text("schema_version: 1\n")
    seen = case("seed-b300")
    lock = fleet / "lock.yml"
    add = unlocked(seen, load_document(fleet, lock, Lock))
    assert "containerd" in add
    text, _ = propose(seen, "new", CONNECTION, NAMES, add)
    told = [line for line in text.splitlines() if line.startswith("#   ")]
    assert told == [f"#   {name}: null" for name in add]
    (fleet / "hosts/new.yml").write_text(text)
    first = {(f.code, f.where.rpartition(" ")[2]) for f in commands.check([fleet]).failures}
    gaps = {("spec.missing_value", key) for key in A_PERSONS}
    assert first == {*gaps, ("spec.lock_entry", "packages")}
    for key, value in (("device_pool_gib", "100"), ("\nimage", "b300"), ("\nengine", "production")):
        text = text.replace(f"{key}: null", f"{key}: {value}", 1)
    (fleet / "hosts/new.yml").write_text(text)
    assert {f.code for f in commands.check([fleet]).failures} == {"spec.lock_entry"}
    lock.write_text(lock.read_text() + "".join(f"{line[2:]}\n" for line in told))
    assert commands.check([fleet]).failures == ()
