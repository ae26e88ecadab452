"""Reads the documents of a record. What cannot be read becomes a stated problem, never an exception."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from kit.apply.result import ApplyEvent, ApplyResult
from kit.cores.model import Assignment, CoreDecision
from kit.facts.model import Facts
from kit.plan.model import Plan
from kit.record.model import EVENTS, OUTSIDE, RUN, STAGES, HostRecord, OutsideCase, RunDocument, Stage, StageLine
from kit.spec.model import HostSpec, Lock

M = TypeVar("M", bound=BaseModel)


def run_document(path: Path, problems: list[str]) -> RunDocument | None:
    """``run.json`` of a run's folder."""
    document = _read(path / RUN, _json, RunDocument, problems)
    if document is None and not problems:
        problems.append(f"{RUN} is missing")
    return document


def host_record(folder: Path, run: RunDocument | None) -> HostRecord:
    """Everything recorded about one host."""
    problems: list[str] = []

    def latest(stage: str, suffix: str) -> Path:
        """A document put again got a number: the last one is what the run ended with."""
        numbered = [p for p in folder.glob(f"{stage}-*{suffix}") if p.name[len(stage) + 1 : -len(suffix)].isdigit()]
        ordered = sorted(numbered, key=lambda p: int(p.name[len(stage) + 1 : -len(suffix)]))
        return ordered[-1] if ordered else folder / f"{stage}{suffix}"

    def mapping(stage: str) -> Mapping[str, Any] | None:
        raw = _raw(latest(stage, ".json"), _json, problems)
        if raw is not None and not isinstance(raw, Mapping):
            problems.append(f"{stage}.json is not a mapping")
            return None
        return raw

    return HostRecord(
        name=folder.name,
        spec=_read(latest("spec", ".yml"), _yaml, HostSpec, problems),
        lock=_read(latest("lock", ".yml"), _yaml, Lock, problems),
        facts=_read(latest("facts", ".json"), _json, Facts, problems),
        plan=_read(latest("plan", ".json"), _json, Plan, problems),
        verify_facts=_read(latest("verify-facts", ".json"), _json, Facts, problems),
        verify_plan=_read(latest("verify-plan", ".json"), _json, Plan, problems),
        cores=_read(latest("cores", ".json"), _json, CoreDecision, problems),
        assignment=_read(latest("assignment", ".json"), _json, Assignment, problems),
        apply=mapping("apply"),
        recap=_read(latest("recap", ".json"), _json, ApplyResult, problems),
        events=_typed(folder / EVENTS, ApplyEvent, problems),
        outside=outside_cases(folder / OUTSIDE, problems),
        stages=stages(folder / STAGES, problems),
        end=run.hosts.get(folder.name) if run else None,
        problems=tuple(problems),
    )


def stages(path: Path, problems: list[str]) -> tuple[Stage, ...]:
    """``stages.jsonl`` as stages: each begin with its end."""
    made: list[Stage] = []
    for line in _typed(path, StageLine, problems):
        if line.event == "begin":
            made.append(Stage(line.stage, line.offset_s, None, "unfinished"))
            continue
        begun = next((i for i in reversed(range(len(made))) if made[i].name == line.stage and made[i].seconds is None), None)
        if begun is None:
            problems.append(f"{path.name}: {line.stage} ends but never began")
            continue
        made[begun] = Stage(line.stage, made[begun].offset_s, line.seconds, line.outcome or "failed", line.failures)
    return tuple(made)


def first_line(error: BaseException) -> str:
    """An error in one line."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def said(message: str) -> str:
    """A test's message for people: its first line, without pytest's words around it and Python's names of objects."""
    first = message.partition("\n")[0]
    wrapped = re.fullmatch(r'failed on \w+ with "(.*?)"?', first)
    plain = re.sub(r"^(?:AssertionError|Failed)(?:: |$)", "", wrapped[1] if wrapped else first)
    return re.sub(r"<(?:\w+\.)*(\w+) object at 0x[0-9a-f]+>", r"\1", plain)


def _seconds(text: str | None) -> float:
    try:
        return float(text or "0")
    except ValueError:
        return 0.0


def outside_cases(path: Path, problems: list[str]) -> tuple[OutsideCase, ...]:
    """What the outside suite's JUnit file says; nothing when there is none."""
    try:
        root = ElementTree.fromstring(path.read_text("utf-8"))  # noqa: S314 - our own pytest's; expat bounds expansion
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, ElementTree.ParseError) as error:
        problems.append(f"{path.name} cannot be read: {first_line(error)}")
        return ()
    cases = []
    for case in root.iter("testcase"):
        bad = next((child for child in case if child.tag in ("failure", "error")), None)
        skipped = case.find("skipped")
        told = bad if bad is not None else skipped
        message = said(told.get("message") or "") if told is not None else ""
        outcome: Literal["passed", "failed", "skipped"] = (
            "failed" if bad is not None else "skipped" if skipped is not None else "passed"
        )
        parts = {name: value for item in case.iter("property") if (name := item.get("name")) and (value := item.get("value"))}
        values = {key: parts.get(key, "") for key in ("what", "expected", "found")}
        cases.append(OutsideCase(case.get("name") or "", outcome, message, **values, seconds=_seconds(case.get("time"))))
    return tuple(cases)


def _yaml(text: str) -> Any:
    # What safe_load does, by libyaml where it is there: some ten times as fast.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _json(text: str) -> Any:
    return json.loads(text)


def _raw(path: Path, parse: Callable[[str], Any], problems: list[str]) -> Any:
    try:
        return parse(path.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        problems.append(f"{path.name} cannot be read: {first_line(error)}")
        return None


def _read(path: Path, parse: Callable[[str], Any], model: type[M], problems: list[str]) -> M | None:
    raw = _raw(path, parse, problems)
    if raw is None:
        return None
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        problems.append(f"{path.name} is not what this version reads: {place}: {first['msg']} ({error.error_count()} in all)")
        return None


def _lines(path: Path, problems: list[str]) -> list[Any]:
    """JSON lines. The last one may be cut off, by a kill: it is left out and said."""
    try:
        lines = path.read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    except OSError as error:
        problems.append(f"{path.name} cannot be read: {first_line(error)}")
        return []
    documents = []
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            documents.append(json.loads(line))
        except ValueError as error:
            problems.append(f"{path.name} line {number} cannot be read: {first_line(error)}")
    return documents


def _typed(path: Path, model: type[M], problems: list[str]) -> tuple[M, ...]:
    read: list[M] = []
    for document in _lines(path, problems):
        try:
            read.append(model.model_validate(document))
        except ValidationError as error:
            problems.append(f"{path.name}: a line is not what this version reads: {error.error_count()} errors")
    return tuple(read)
