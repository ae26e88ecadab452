"""JUnit of verify: green only when the host is as declared."""

from __future__ import annotations

from xml.etree import ElementTree

from kit.errors import failure
from kit.plan.model import Plan
from kit.plan.steps import change, keep, refuse
from kit.record.model import OutsideCase
from kit.report import cases

PLAN = Plan(
    host="n",
    boot_id="b",
    steps=(
        keep("cpu.governor", "as declared", expected="performance", found="performance"),
        keep("gpu.pcie", "no PCIe link is declared", found="not judged"),
        change("services.docker", "docker is masked", "services", expected="running", found="masked \x1b[2J"),
        refuse("gpu.ecc", "a row is broken", expected="0", found="1", next="return the node"),
    ),
)
SEEN = (
    OutsideCase("test_good", "passed", seconds=0.25),
    OutsideCase("test_docker", "failed", "docker.service: expected running, found no process"),
    OutsideCase("test_irq", "skipped", "declared to be left alone"),
)


def counts(suite: ElementTree.Element) -> dict[str, str | None]:
    return {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")}


def test_a_step_that_is_not_kept_is_a_failure_beside_the_outside_suite() -> None:
    told = [failure("plan.gpu.ecc", "n", "0", "1"), failure("outside.test_docker", "n", "running", "no process")]
    root = ElementTree.fromstring(cases.document([cases.suites("n", PLAN, SEEN, told)]))
    plan, outside = root
    assert (plan.get("name"), outside.get("name"), outside.get("time")) == ("n.plan", "n.outside", "0.250")
    assert counts(plan) == {"tests": "4", "failures": "2", "errors": "0", "skipped": "1"}
    assert counts(outside) == {"tests": "3", "failures": "1", "errors": "0", "skipped": "1"}
    docker, ecc = plan.iter("failure")
    assert docker.get("message") == "expected running; found masked \\x1b[2J. Next: invoke provision"
    assert ecc.get("message") == "expected 0; found 1. Next: return the node"
    (skipped,) = plan.iter("skipped")
    assert skipped.get("message") == "no PCIe link is declared"


def test_a_host_that_was_not_looked_at_is_not_green() -> None:
    lost = failure("ssh.unreachable", "n", "an answer", "none", "look at its console")
    for told, name in (([lost], "ssh.unreachable"), ([], "plan")):
        (suite,) = ElementTree.fromstring(cases.document([cases.suites("n", None, (), told)]))
        assert counts(suite) == {"tests": "1", "failures": "0", "errors": "1", "skipped": "0"}
        assert [case.get("name") for case in suite] == [name]
