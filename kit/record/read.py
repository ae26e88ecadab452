"""Reads records back. One bad run, host or document never hides the others: it becomes a stated problem."""

from __future__ import annotations

import hashlib
from pathlib import Path

from kit import procfs
from kit.errors import ExitCode, KitError, failure
from kit.files import PARTIAL
from kit.record import files, guard
from kit.record.documents import first_line, host_record, run_document, stages
from kit.record.model import (
    DERIVED,
    REPORT,
    RUN,
    STAGES,
    HostRecord,
    RunDocument,
    RunRecord,
    RunState,
    RunSummary,
    SumFinding,
    Verification,
)

_SCAN_LIMIT = 8 << 20
"""Bytes of one file searched for secrets; larger ones are raw samples that this kit wrote itself."""


def find(runs_dir: Path, name: str) -> Path:
    """The folder of a run by its id, a part of its id that only one has, or ``latest``.

    Raises KitError(USAGE, ``record.not_found``, ``record.ambiguous`` or ``record.unreadable``).
    """
    runs = _folders(runs_dir)
    if name == "latest":
        matches = runs[:1]
    else:
        matches = [path for path in runs if path.name == name] or [path for path in runs if name and name in path.name]
    if len(matches) == 1:
        return matches[0]
    known = ", ".join(path.name for path in (matches or runs)[:5]) or "no run at all"
    raise KitError(
        failure(
            "record.ambiguous" if matches else "record.not_found",
            f"{runs_dir}: {name!r}",
            "the id of one run, a part of it that only one run has, or 'latest'",
            f"{len(matches)} runs match ({known})" if matches else f"none matches; there is {known}",
            "see `invoke record.list`",
        ),
        ExitCode.USAGE,
    )


def list_runs(runs_dir: Path) -> list[RunSummary]:
    """Every run, newest first, the unreadable ones too. An absent folder is no run.

    Raises KitError(USAGE, ``record.unreadable``) when the folder itself cannot be read.
    """
    return [_summary(path) for path in _folders(runs_dir)]


def show(run_dir: Path) -> RunRecord:
    """All that is recorded about a run, typed. Raises KitError(USAGE, ``record.not_found``) when there is no folder."""
    if not run_dir.is_dir():
        raise KitError(
            failure("record.not_found", str(run_dir), "a run's folder", "nothing there", "see `invoke record.list`"),
            ExitCode.USAGE,
        )
    problems: list[str] = []
    document = run_document(run_dir, problems)
    hosts: dict[str, HostRecord] = {}
    hosts_dir = run_dir / "hosts"
    if hosts_dir.is_dir():
        for folder in sorted(p for p in hosts_dir.iterdir() if p.is_dir()):
            hosts[folder.name] = host_record(folder, document)
    return RunRecord(run_dir, _state(document), document, hosts, stages(run_dir / STAGES, problems), tuple(problems))


def verify(run_dir: Path) -> Verification:
    """Hash every file again and compare with ``SHA256SUMS``: which are changed, missing, added, or hold a secret.

    In a run that was cut off, lines added and documents written after the last sums are ``unsealed``, not changed.
    This shows damage and edits, not forgery by someone who rewrites the sums too.
    """
    record = show(run_dir)
    sealed = record.state is RunState.FINISHED
    findings: list[SumFinding] = []
    try:
        declared = files.parse_sums((run_dir / files.SUMS).read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError) as error:
        declared = {}
        findings.append(SumFinding(files.SUMS, "missing" if isinstance(error, FileNotFoundError) else "unreadable", str(error)))
    present = files.record_files(run_dir, DERIVED)
    for name in sorted(declared.keys() | present.keys()):
        finding = _compare(name, present.get(name), declared.get(name), sealed)
        findings += [finding] if finding else []
        findings += _scan(name, present[name]) if name in present else []
    findings += [
        SumFinding(path.relative_to(run_dir).as_posix(), "partial", "left by a write that was cut off; nothing refers to it")
        for path in sorted(run_dir.rglob(f"{PARTIAL}*"))
    ]
    return Verification(record.id, record.state, len(declared), tuple(findings))


def sums(run_dir: Path) -> dict[str, str]:
    """Path -> digest as recorded; empty when the sums are not there or not readable (:func:`verify` says so)."""
    try:
        return files.parse_sums((run_dir / files.SUMS).read_text("utf-8", "surrogateescape"))
    except (OSError, ValueError):
        return {}


def report(run_dir: Path) -> Path:
    """Write the run's HTML page into its folder and return where it is. The record itself stays as it is.

    Raises KitError(INTERNAL, ``record.write``).
    """
    from kit.report.html import render  # Jinja2 is loaded only when a page is made.

    path = run_dir / REPORT
    files.write_atomic(path, render(run_dir).encode())
    return path


def _folders(runs_dir: Path) -> list[Path]:
    try:
        return sorted((p for p in runs_dir.iterdir() if p.is_dir() and not p.is_symlink()), key=lambda p: p.name, reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        # A folder that cannot be read is not one without records.
        found = error.strerror or str(error)
        step = "correct its permissions, or set B300KIT_RUNS to another folder"
        raise KitError(failure("record.unreadable", str(runs_dir), "a folder of records", found, step), ExitCode.USAGE) from error


def _summary(path: Path) -> RunSummary:
    problems: list[str] = []
    try:
        document = run_document(path, problems)
        hosts = tuple(sorted(p.name for p in (path / "hosts").iterdir())) if (path / "hosts").is_dir() else ()
    except OSError as error:
        return RunSummary(path.name, path, RunState.UNREADABLE, problem=str(error))
    if document is None:
        return RunSummary(path.name, path, RunState.UNREADABLE, hosts=hosts, problem="; ".join(problems))
    return RunSummary(
        path.name, path, _state(document), document.task, document.started, document.seconds, document.exit_code, hosts
    )


def _state(document: RunDocument | None) -> RunState:
    if document is None:
        return RunState.UNREADABLE
    if document.finished is not None:
        return RunState.FINISHED
    same_boot = bool(document.boot_id) and document.boot_id == procfs.boot_id()
    alive = same_boot and procfs.started(document.pid) == document.pid_started
    return RunState.RUNNING if alive else RunState.INTERRUPTED


def _compare(name: str, path: Path | None, declared: str | None, sealed: bool) -> SumFinding | None:
    if path is None:
        return SumFinding(name, "missing", f"recorded as {declared}")
    if declared is None:
        return SumFinding(name, "extra" if sealed else "unsealed", "in no sum")
    try:
        found = files.file_sha256(path)
        if found == declared:
            return None
        # run.json is replaced after the sums that already name its last content; lines are added between two sums.
        if not sealed and (name == RUN or _grown(path, declared)):
            return SumFinding(name, "unsealed", "written on after the last sums")
    except OSError as error:
        return SumFinding(name, "unreadable", first_line(error))
    return SumFinding(name, "changed", f"recorded as {declared}, is {found}")


def _grown(path: Path, declared: str) -> bool:
    """Whether a beginning of the file, up to some line end, has the recorded hash: then lines were only added."""
    digest = hashlib.sha256()
    if digest.hexdigest() == declared:
        return True
    with path.open("rb") as stream:
        for line in stream:
            digest.update(line)
            if digest.hexdigest() == declared:
                return True
    return False


def _scan(name: str, path: Path) -> list[SumFinding]:
    """Files that Ansible or a tool wrote never passed the guard, so a record is searched again as a whole."""
    try:
        if path.stat().st_size > _SCAN_LIMIT:
            return []
        return [
            SumFinding(name, "secret", f"{s.path.removeprefix('. ')} looks like a {s.kind}")
            for s in guard.secrets_in(path.read_bytes())
        ]
    except OSError as error:
        return [SumFinding(name, "unreadable", first_line(error))]
