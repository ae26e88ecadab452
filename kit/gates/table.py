"""Gate results as a table, JSON and JUnit. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any
from xml.etree import ElementTree

from kit.gates.names import ABOUT
from kit.gates.verdict import GateResult, Verdict

MARKS = {Verdict.PASSED: "passed", Verdict.FAILED: "FAILED", Verdict.INCONCLUSIVE: "unsure", Verdict.NOT_APPLICABLE: "n/a"}
FAULTS_SHOWN = 4
_NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def table(results: Sequence[GateResult], total_s: float) -> str:
    """One line a gate, its faults below it, the total at the end."""
    width = max((len(one.name) for one in results), default=4)
    lines = []
    for one in results:
        took = f"{one.seconds:7.1f} s" if one.seconds is not None else " " * 9
        lines.append(f"  {MARKS[one.judgement.verdict]:7} {one.name:{width}} {took}  {one.judgement.reason}")
        faults = one.judgement.faults
        for fault in faults[:FAULTS_SHOWN]:
            step = f". Next: {fault.next}" if fault.next else ""
            lines.append(
                f"          {' ' * width}  {fault.code}: {fault.where}: expected {fault.expected}, found {fault.found}{step}"
            )
        if len(faults) > FAULTS_SHOWN:
            lines.append(f"          {' ' * width}  and {len(faults) - FAULTS_SHOWN} more, in the record")
    count = {verdict: sum(one.judgement.verdict is verdict for one in results) for verdict in Verdict}
    said = ", ".join(f"{number} {MARKS[verdict]}" for verdict, number in count.items() if number)
    return "\n".join([*lines, f"  {said}; {total_s:.1f} s in all"])


def as_json(results: Sequence[GateResult]) -> list[dict[str, Any]]:
    """``gates: [{name, verdict, reason, seconds, ...}]`` of the envelope."""
    return [
        {
            "name": one.name,
            "required": one.required,
            "verdict": one.judgement.verdict.value,
            "reason": one.judgement.reason,
            "seconds": one.seconds,
            "faults": [fault.model_dump() for fault in one.judgement.faults],
            "figures": dict(one.judgement.figures),
            "evidence": list(one.evidence),
        }
        for one in results
    ]


def junit(suites: Sequence[tuple[str, Sequence[GateResult]]]) -> str:
    """JUnit XML: a suite a host, a case a gate. Inconclusive is an error: it did not pass."""
    root = ElementTree.Element("testsuites")
    for host, results in suites:
        failed = sum(one.judgement.verdict is Verdict.FAILED for one in results)
        unsure = sum(one.judgement.verdict is Verdict.INCONCLUSIVE for one in results)
        skipped = sum(one.judgement.verdict is Verdict.NOT_APPLICABLE for one in results)
        counts = {"tests": len(results), "failures": failed, "errors": unsure, "skipped": skipped}
        seconds = sum(one.seconds or 0.0 for one in results)
        attributes = {"name": host, "time": f"{seconds:.2f}"} | {key: str(count) for key, count in counts.items()}
        suite = ElementTree.SubElement(root, "testsuite", attributes)
        for one in results:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"gate.{host}", name=one.name, time=f"{one.seconds or 0:.2f}"
            )
            kind = {Verdict.FAILED: "failure", Verdict.INCONCLUSIVE: "error", Verdict.NOT_APPLICABLE: "skipped"}.get(
                one.judgement.verdict
            )
            if kind is not None:
                child = ElementTree.SubElement(case, kind, message=_plain(one.judgement.reason))
                child.text = _plain(
                    "\n".join(f"{f.code}: {f.where}: expected {f.expected}, found {f.found}" for f in one.judgement.faults)
                )
            ElementTree.SubElement(case, "system-out").text = ABOUT[one.name]
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _plain(text: str) -> str:
    """XML 1.0 has no place for most control characters, and a broken model prints them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
