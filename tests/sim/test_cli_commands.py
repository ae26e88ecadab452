"""The commands around provisioning, typed on one new host: a spec from it, its versions, its cores, the files they leave."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from kit.apply.ssh import Remote, host_lock
from kit.sim import flow
from kit.sim.places import Places
from tests.cli import OnHost, Ran, fleet_of, invoke, look

from . import applying


@pytest.fixture(scope="module")
def node(_sim_possible: None) -> Iterator[str]:
    """A new host of this file's own."""
    name = f"t{os.getpid()}-commands"
    flow.up(name, "b300-4")
    yield name
    flow.down(name)


@pytest.fixture
def fleet(node: str, tmp_path: Path) -> Path:
    return fleet_of(tmp_path / "fleet", [node])


@pytest.fixture
def call(fleet: Path, tmp_path: Path) -> Callable[..., Ran]:
    return lambda *words: invoke(*words, B300KIT_FLEET=fleet, B300KIT_RUNS=tmp_path / "runs")


def test_a_spec_is_proposed_from_a_live_host_once_its_key_was_compared(node: str, fleet: Path, call: Callable[..., Ran]) -> None:
    spec = fleet / "hosts" / f"{node}.yml"
    declared = yaml.safe_load(spec.read_text())
    spec.unlink()
    (fleet / "fleet.yml").write_text("schema_version: 1\n")
    there, kind_and_key = declared["connection"], declared["connection"]["host_key"]
    words = ["fleet.init", "--host", f"ops@{there['address']}:{there['port']}", "--name", node]
    words += ["--identity-file", str(Places.here().client_key), "--write"]

    unseen = call(*words)
    assert (unseen.code, unseen.codes) == (2, ["ssh.host_key_unconfirmed"])
    other = call(*words, "--accept-host-key", "SHA256:" + "A" * 43)
    assert (other.code, other.codes) == (7, ["ssh.host_key"])
    assert not spec.exists()

    fingerprint = unseen.document["failures"][0]["next"].split()[-1]
    written = call(*words, "--accept-host-key", fingerprint)
    assert written.code == 0, written.err
    assert sorted(written.document["result"]["fill_in"]) == ["engine", "image", "memory.hicache.device_pool_gib"]
    proposed = yaml.safe_load(spec.read_text())
    assert proposed["connection"]["host_key"] == kind_and_key
    assert (proposed["gpus"]["count"], proposed["gpus"]["sms"], proposed["cpu"]["fast_cores"]["count"]) == (4, 148, 16)
    assert set(call("fleet.check").codes) == {"spec.missing_value"}
    assert call(*words, "--accept-host-key", fingerprint).codes == ["fleet.exists"]


def test_the_versions_of_an_accepted_host_become_the_locks(node: str, fleet: Path, call: Callable[..., Ran]) -> None:
    lock = fleet / "lock.yml"
    accepted = lock.read_text()
    lock.write_text(accepted.replace("580.95.05-1", "580.65.06-1"))
    assert lock.read_text() != accepted
    seen = call("fleet.lock", "--host", node, "--check")
    moves = seen.document["result"]["hosts"][node]["moves"]
    assert seen.code == 3
    assert {m["key"]: (m["old"], m["new"]) for m in moves} == {
        f"packages.nvidia-{part}": ("580.65.06-1", "580.95.05-1") for part in ("driver", "fabricmanager")
    }
    assert lock.read_text() != accepted
    assert call("fleet.lock", "--host", node).code == 0
    assert yaml.safe_load(lock.read_text()) == yaml.safe_load(accepted)
    assert call("fleet.lock", "--host", node, "--check").code == 0


def test_cores_are_measured_where_a_process_can_run_and_never_on_a_joined_host(
    node: str, call: Callable[..., Ran], on_host: OnHost
) -> None:
    ran = call("probe", "--host", node, "--measure-cores")
    assert ran.code == 0, ran.err
    measured = ran.document["result"]["hosts"][node]["facts"]["cpu"]["measured"]
    known = [core for core in measured["cores"] if isinstance(core["alone_mhz"], float)]
    assert len(measured["cores"]) == 128
    assert 0 < len(known) <= len(os.sched_getaffinity(0))
    assert all(core["alone_mhz"] == {"unknown": core["alone_mhz"]["unknown"]} for core in measured["cores"] if core not in known)

    on_host(node, "sudo mkdir -p /var/lib/b300kit")
    on_host(node, """echo '{"state": "joined"}' | sudo tee /var/lib/b300kit/membership.json""")
    try:
        refused = call("probe", "--host", node, "--measure-cores")
    finally:
        on_host(node, "sudo rm -r /var/lib/b300kit")
    assert (refused.code, refused.codes) == (4, ["measure.joined"])


def test_a_host_that_somebody_works_on_is_looked_at_but_not_loaded(node: str, call: Callable[..., Ran]) -> None:
    connection = applying.target(node).spec.connection
    with host_lock(Remote(connection, node), "ann@desk provision"):
        for load in ("--measure-cores", "--burn-in"):
            refused = call("probe", "--host", node, load)
            assert (refused.code, refused.codes) == (12, ["host.locked"])
            assert "ann@desk provision" in refused.document["failures"][0]["found"]
        assert call("probe", "--host", node).code == 0


def test_what_was_asked_for_as_files_is_there_and_the_host_is_as_it_was(
    node: str, call: Callable[..., Ran], on_host: OnHost, tmp_path: Path
) -> None:
    before = look(on_host, node)
    metrics, junit = tmp_path / "b300kit.prom", tmp_path / "verify.xml"
    drifted = call("drift", "--host", node, "--textfile", str(metrics))
    assert drifted.code == 3
    assert f'kit_drift_items{{host="{node}"}} {len(drifted.steps(node))}' in metrics.read_text().splitlines()

    verified = call("verify", "--host", node, "--junit", str(junit))
    assert verified.code == 5, "a failed outside suite outranks what is only to change"
    outside = verified.document["result"]["hosts"][node]["outside"]
    suites = {suite.get("name"): suite for suite in ElementTree.parse(junit).getroot().iter("testsuite")}
    planned, suite = suites[f"{node}.plan"], suites[f"{node}.outside"]
    assert sorted(case.get("name") for case in planned) == sorted(
        step["id"] for step in verified.document["result"]["hosts"][node]["steps"]
    )
    assert len(list(planned.iter("failure"))) == len(verified.steps(node)) > 0
    assert not any("object at 0x" in line or line.startswith("Assert") for line in junit.read_text().splitlines())
    assert outside["failed"] == len(list(suite.iter("failure"))) + len(list(suite.iter("error"))) > 0
    assert len(list(suite.iter("testcase"))) == sum(outside.values())
    assert look(on_host, node) == before

    assert call("record.show").document["result"]["run"]["task"] == "verify"
    assert Path(call("record.report", "--run", "latest").document["result"]["report"]).read_text().startswith("<!doctype html>")
