"""All required gates or none; a pass holds for exactly what was gated."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from kit.errors import ExitCode
from kit.gates.identity import GATE_VERSION, HELD, Identity, Pass, grant, invalid
from kit.gates.names import GATES, GateName
from kit.gates.table import as_json, junit, table
from kit.gates.verdict import Fault, GateResult, Judgement, Verdict, judged, overall

REQUIRED: tuple[GateName, ...] = ("graphs", "greedy", "kl")
IDENTITY = Identity(
    host="node-1",
    profile="production",
    model="DeepSeek-V4.1-Flash",
    image_id="sha256:a",
    plan_digest="b",
    argv_sha256="c",
    weights_sha256="d",
    boot_id="e",
    invocation_id="f",
)


def result(name: GateName, verdict: Verdict = Verdict.PASSED) -> GateResult:
    fault = Fault(code=f"{name}.planted", where="rank 2", expected="27 of 27", found="26 of 27")
    faults = () if verdict is Verdict.PASSED else (fault,)
    return GateResult(name=name, required=True, judgement=Judgement(verdict=verdict, reason="x", faults=faults), seconds=1.0)


def results(**verdicts: Verdict) -> list[GateResult]:
    return [result(name, verdicts.get(name, Verdict.PASSED)) for name in REQUIRED]


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [
        ({}, ExitCode.OK),
        ({"kl": Verdict.FAILED}, ExitCode.GATE_FAILED),
        ({"kl": Verdict.INCONCLUSIVE}, ExitCode.INCONCLUSIVE),
        ({"kl": Verdict.INCONCLUSIVE, "greedy": Verdict.FAILED}, ExitCode.GATE_FAILED),
        ({"kl": Verdict.NOT_APPLICABLE}, ExitCode.GATE_FAILED),
    ],
)
def test_overall(verdicts: dict[str, Verdict], code: ExitCode) -> None:
    found, failures = overall(REQUIRED, results(**verdicts))
    assert found == code
    assert bool(failures) is (code != ExitCode.OK)


def test_a_gate_that_did_not_run_fails() -> None:
    code, failures = overall(REQUIRED, results()[:2])
    assert code == ExitCode.GATE_FAILED
    assert [f.code for f in failures] == ["gate.missing"]


def test_a_pass_needs_every_gate_and_an_engine_that_stayed() -> None:
    good = grant(IDENTITY, IDENTITY, REQUIRED, results(), "run-1", 1.0)
    assert isinstance(good, Pass)
    assert invalid(good, IDENTITY, REQUIRED) == ()
    assert not isinstance(grant(IDENTITY, IDENTITY, REQUIRED, results(kl=Verdict.INCONCLUSIVE), "run-1", 1.0), Pass)
    assert not isinstance(grant(IDENTITY, IDENTITY, REQUIRED, results()[1:], "run-1", 1.0), Pass)


@pytest.mark.parametrize("key", HELD)
def test_what_moved_while_it_was_gated_gets_no_pass(key: str) -> None:
    moved = grant(IDENTITY, IDENTITY.model_copy(update={key: "other"}), REQUIRED, results(), "run-1", 1.0)
    assert not isinstance(moved, Pass)
    assert [f.code for f in moved] == ["pass.moved"]
    if key not in ("host", "profile", "model"):
        unknown = grant(IDENTITY.model_copy(update={key: None}), IDENTITY, REQUIRED, results(), "run-1", 1.0)
        assert not isinstance(unknown, Pass)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("boot_id", "before a reboot"),
        ("invocation_id", "restarted since"),
        ("image_id", "another image"),
        ("argv_sha256", "another command"),
        ("weights_sha256", "other weights"),
        ("plan_digest", "another state of the host"),
        ("host", "another host"),
        ("model", "another model"),
        ("profile", "another profile"),
    ],
)
def test_a_stale_pass_is_told_by_name(key: str, words: str) -> None:
    good = grant(IDENTITY, IDENTITY, REQUIRED, results(), "run-1", 1.0)
    assert isinstance(good, Pass)
    found = invalid(good, IDENTITY.model_copy(update={key: "other"}), REQUIRED)
    assert [f.code for f in found] == [f"pass.{key}"]
    assert words in found[0].found


def test_no_pass_an_older_gate_and_fewer_gates() -> None:
    good = grant(IDENTITY, IDENTITY, REQUIRED, results(), "run-1", 1.0)
    assert isinstance(good, Pass)
    assert [f.code for f in invalid(None, IDENTITY, REQUIRED)] == ["pass.none"]
    old = good.model_copy(update={"gate_version": GATE_VERSION - 1})
    assert [f.code for f in invalid(old, IDENTITY, REQUIRED)] == ["pass.version"]
    assert [f.code for f in invalid(good, IDENTITY, (*REQUIRED, "tools"))] == ["pass.gates"]


def test_unknown_now_is_not_the_same() -> None:
    good = grant(IDENTITY, IDENTITY, REQUIRED, results(), "run-1", 1.0)
    assert isinstance(good, Pass)
    assert [f.code for f in invalid(good, IDENTITY.model_copy(update={"boot_id": None}), REQUIRED)] == ["pass.boot_id"]


def test_figures_that_are_no_numbers_are_left_out() -> None:
    assert judged((), (), "fine", {"a": float("nan"), "b": float("inf"), "c": 1.5}).figures == {"a": None, "b": None, "c": 1.5}


def test_the_table_shows_faults_and_the_total() -> None:
    text = table(results(graphs=Verdict.FAILED, kl=Verdict.INCONCLUSIVE), 12.3)
    assert re.search(r"FAILED +graphs", text)
    assert "rank 2: expected 27 of 27, found 26 of 27" in text
    assert "1 passed, 1 FAILED, 1 unsure; 12.3 s in all" in text


def test_junit_counts_what_did_not_pass() -> None:
    made: list[Any] = results(graphs=Verdict.FAILED, kl=Verdict.INCONCLUSIVE)
    reason = Judgement(verdict=Verdict.NOT_APPLICABLE, reason="no GPU \x00 here")
    made.append(GateResult(name="plugin", required=False, judgement=reason, seconds=None))
    suite = ElementTree.fromstring(junit([("node-1", made)]))[0]
    assert {k: suite.get(k) for k in ("tests", "failures", "errors", "skipped")} == {
        "tests": "4",
        "failures": "1",
        "errors": "1",
        "skipped": "1",
    }


def test_json_says_the_verdict_of_each() -> None:
    assert [(one["name"], one["verdict"]) for one in as_json(results())] == [(name, "passed") for name in REQUIRED]
    assert len(set(GATES)) == 16
