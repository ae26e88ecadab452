"""Verdicts: of one gate, and of all of a profile's. Pure functions of what was recorded, so they can be made again."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

from pydantic import Field

from kit.errors import ExitCode, Failure, failure
from kit.gates.declare import Frozen
from kit.gates.names import GateName


class Verdict(StrEnum):
    """How a gate ended. Only ``passed`` passes; skipped, missing and unknown are none of these and never do."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"
    """The evidence does not say: something could not be read, or the engine was not idle."""
    NOT_APPLICABLE = "not_applicable"
    """The profile says why; a gate that the profile requires never ends so."""


class Fault(Frozen):
    """One thing that a gate caught, by name."""

    code: str
    """Stable, ``gate.thing``: ``greedy.bytes``, ``graphs.count``."""
    where: str
    """Which rank, prompt, case."""
    expected: str
    found: str
    next: str = ""


class Judgement(Frozen):
    """What a judge says of its evidence."""

    verdict: Verdict
    reason: str
    """One sentence; never empty."""
    faults: tuple[Fault, ...] = ()
    figures: Mapping[str, float | int | str | None] = Field(default_factory=dict)


class GateResult(Frozen):
    """One line of the table, as recorded."""

    name: GateName
    required: bool
    judgement: Judgement
    seconds: float | None
    evidence: tuple[str, ...] = ()
    """Files in the record."""


def judged(
    faults: Iterable[Fault], unknown: Iterable[Fault], good: str, figures: Mapping[str, float | int | str | None]
) -> Judgement:
    """Failed by any fault, else inconclusive by anything not known, else passed with ``good`` as the reason.

    A figure that is not finite is left out of the record as None: NaN is no number.
    """
    wrong, unsure = tuple(faults), tuple(unknown)
    kept = {name: _finite(value) for name, value in figures.items()}
    if wrong:
        return Judgement(verdict=Verdict.FAILED, reason=_words(wrong), faults=wrong + unsure, figures=kept)
    if unsure:
        return Judgement(verdict=Verdict.INCONCLUSIVE, reason=_words(unsure), faults=unsure, figures=kept)
    return Judgement(verdict=Verdict.PASSED, reason=good, figures=kept)


def _words(faults: Sequence[Fault]) -> str:
    first = faults[0]
    more = f", and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{first.where}: expected {first.expected}, found {first.found}{more}"


def _finite(value: float | int | str | None) -> float | int | str | None:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def fault(code: str, where: str, expected: object, found: object, next: str = "") -> Fault:
    """Build a :class:`Fault`, turning values into text once, here."""
    return Fault(code=code, where=where, expected=str(expected), found=str(found), next=next)


def not_applicable(reason: str) -> Judgement:
    """As the profile declares."""
    return Judgement(verdict=Verdict.NOT_APPLICABLE, reason=reason)


def overall(required: Sequence[GateName], results: Sequence[GateResult]) -> tuple[int, tuple[Failure, ...]]:
    """Exit code and failures: every required gate must be there once and have passed. Failed outranks inconclusive."""
    failures: list[Failure] = []
    found = {result.name: result for result in results}
    failed, unsure = False, False
    for name in required:
        result = found.get(name)
        if result is None:
            failed = True
            failures.append(failure("gate.missing", name, "a verdict", "the gate did not run", "run it again"))
            continue
        verdict = result.judgement.verdict
        if verdict is Verdict.PASSED:
            continue
        failed |= verdict in (Verdict.FAILED, Verdict.NOT_APPLICABLE)
        unsure |= verdict is Verdict.INCONCLUSIVE
        failures += _failures(result)
    code = ExitCode.GATE_FAILED if failed else ExitCode.INCONCLUSIVE if unsure else ExitCode.OK
    return code, tuple(failures)


def _failures(result: GateResult) -> list[Failure]:
    judgement = result.judgement
    if not judgement.faults:
        return [
            failure(f"gate.{result.name}", result.name, "passed", f"{judgement.verdict}: {judgement.reason}", "see the record")
        ]
    return [failure(f"gate.{one.code}", one.where, one.expected, one.found, one.next) for one in judgement.faults]
