"""What ``verify`` found out about each host as JUnit: a case for each step of the plan, beside the outside suite's. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from kit.errors import Failure
from kit.plan.model import Action, Plan, Step
from kit.record.model import OutsideCase
from kit.report.clean import visible


def suites(name: str, plan: Plan | None, outside: Sequence[OutsideCase], failures: Iterable[Failure]) -> list[Element]:
    """The suites of one host: ``NAME.plan``, ``NAME.outside``, and ``NAME.run`` with what kept either from being looked at.

    A step that is kept has passed; one that would change, is refused or waits for a reboot has failed; one that the spec leaves
    unjudged is skipped. A host without a plan has at least one error: what was not looked at is not green.
    """
    told = [f for f in failures if not f.code.startswith("plan.") and f.code not in {f"outside.{c.name}" for c in outside}]
    broken = [_case(f"{name}.run", f.code, "error", f.text(), f.text()) for f in told]
    if plan is None and not broken:
        broken = [_case(f"{name}.run", "plan", "error", "the host was not looked at", "")]
    made = [
        _suite(f"{name}.plan", [_step(name, step) for step in plan.steps] if plan else []),
        _suite(f"{name}.outside", [_outside(name, case) for case in outside]),
        _suite(f"{name}.run", broken),
    ]
    return [suite for suite in made if len(suite)]


def document(hosts: Iterable[Sequence[Element]]) -> bytes:
    """All hosts' suites as one XML file."""
    root = Element("testsuites")
    for made in hosts:
        root.extend(made)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _suite(name: str, cases: Sequence[Element]) -> Element:
    seconds = sum(float(case.get("time", "0")) for case in cases)
    counts = {kind: sum(case.find(tag) is not None for case in cases) for kind, tag in _COUNTED}
    figures = {"tests": len(cases), **counts}
    suite = Element("testsuite", {"name": name, "time": f"{seconds:.3f}"} | {key: str(value) for key, value in figures.items()})
    suite.extend(cases)
    return suite


_COUNTED = (("failures", "failure"), ("errors", "error"), ("skipped", "skipped"))


def _step(host: str, step: Step) -> Element:
    kind = "" if step.action is Action.KEEP else "failure"
    if step.action is Action.KEEP and step.found.endswith("not judged"):
        kind = "skipped"
    step_next = step.next or {Action.CHANGE: "invoke provision", Action.REBOOT: "invoke provision --reboot"}.get(step.action, "")
    told = f"expected {step.expected or 'as declared'}; found {step.found or step.reason}"
    message = step.reason if kind == "skipped" else f"{told}. Next: {step_next}"
    return _case(f"{host}.plan", step.id, kind, message, f"{step.action.value}: {step.reason}")


def _outside(host: str, case: OutsideCase) -> Element:
    kind = {"failed": "failure", "skipped": "skipped"}.get(case.outcome, "")
    return _case(f"{host}.outside", case.name, kind, case.message, "", case.seconds)


def _case(of: str, name: str, kind: str, message: str, text: str, seconds: float = 0.0) -> Element:
    case = Element("testcase", {"classname": of, "name": name, "time": f"{seconds:.3f}"})
    if kind:
        # A host may say what XML has no place for.
        ElementTree.SubElement(case, kind, {"message": visible(message)}).text = visible(text)
    return case
