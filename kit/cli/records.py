"""``record.*``: what runs left behind, as an outcome."""

from __future__ import annotations

import dataclasses
from typing import Any

from kit import paths
from kit.errors import ExitCode, failure
from kit.outcome import Outcome
from kit.record import read
from kit.record.model import RunState, RunSummary, Stage


def listing(limit: int) -> Outcome:
    """Newest first; ``limit`` 0 is all."""
    runs = read.list_runs(paths.runs_dir())
    shown = runs[:limit] if limit > 0 else runs
    text = "\n".join(_line(run) for run in shown) or f"no record yet in {paths.runs_dir()}"
    return Outcome("record.list", result={"runs": [_plain(run) for run in shown], "total": len(runs)}, text=text)


def _line(run: RunSummary) -> str:
    if run.state is RunState.UNREADABLE:
        return f"{run.id}  unreadable: {run.problem}"
    end = f"exit {run.exit_code}" if run.exit_code is not None else str(run.state.value)
    took = f"{run.seconds:.1f} s" if run.seconds is not None else "-"
    return f"{run.id}  {run.task:10} {end:10} {took:>9}  {', '.join(run.hosts)}"


def _plain(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def show(run: str) -> Outcome:
    """One run, all its stages and what each host came to."""
    record = read.show(read.find(paths.runs_dir(), run))
    document = record.document.model_dump(mode="json") if record.document else None
    stages = {"": record.stages, **{name: host.stages for name, host in record.hosts.items()}}
    lines = [f"{record.id}  {record.state.value}  {record.path}"]
    if record.document:
        lines.append(f"{record.document.task}: exit {record.document.exit_code}, started {record.document.started}")
    lines += [_stage(name or "run", stage) for name, all_ in stages.items() for stage in all_]
    lines += [f"problem: {problem}" for problem in record.problems]
    result = {
        "path": record.path,
        "state": record.state.value,
        "run": document,
        "stages": {name or "run": [_plain(stage) for stage in all_] for name, all_ in stages.items()},
        "problems": record.problems,
    }
    return Outcome("record.show", result=result, text="\n".join(lines))


def _stage(name: str, stage: Stage) -> str:
    took = f"{stage.seconds:8.2f} s" if stage.seconds is not None else " " * 10
    return f"  {name:20} {stage.name:20} {took}  {stage.outcome}"


def report(run: str) -> Outcome:
    """Render the HTML page again."""
    path = read.report(read.find(paths.runs_dir(), run))
    return Outcome("record.report", result={"report": path}, text=str(path))


def verify(run: str) -> Outcome:
    """Compare every file with the sums; exit 5 when the record is not as it was written."""
    found = read.verify(read.find(paths.runs_dir(), run))
    failures = tuple(
        failure(
            f"record.{item.kind}", f"{found.id}/{item.path}", "as it was written", item.detail or item.kind, "do not rely on it"
        )
        for item in found.findings
        if not found.ok
    )
    result = {
        "run": found.id,
        "state": found.state.value,
        "checked": found.checked,
        "findings": [_plain(f) for f in found.findings],
    }
    text = f"{found.id}: {found.checked} files as written ({found.state.value})" if found.ok else ""
    code = ExitCode.OK if found.ok else ExitCode.GATE_FAILED
    return Outcome("record.verify", result=result, failures=failures, exit_code=code, text=text)
