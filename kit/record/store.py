"""Writes the record of one run: a folder of its own, each document complete or absent, sums after every stage.

What an earlier run wrote is never touched, and within a run a document put twice gets a number, not a rewrite.
"""

from __future__ import annotations

import json
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import msgspec
import yaml
from pydantic import BaseModel

from kit.errors import ExitCode, Failure, KitError, failure
from kit.outcome import HostOutcome
from kit.record import environment, files, guard
from kit.record.model import DERIVED, EVENTS, RUN, STAGES, HostEnd, RunDocument, StageLine
from kit.spec.model import NAME

Document = BaseModel | Mapping[str, Any] | Sequence[Any] | str | bytes
_SUFFIXES: Mapping[str, str] = {"spec": ".yml", "lock": ".yml"}
_DONE = frozenset({"recap"})
"""What tells of things already done to a host: redacted, not refused, or the telling would be lost."""
_STAGE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_LONE = re.compile("[\ud800-\udfff]")
_HOST_NAME = re.compile(NAME)


class Room:
    """A folder of a record: the run's own, or one host's. Safe to use from several threads, one thread a host."""

    def __init__(self, run: Run, path: Path) -> None:
        self.path = path
        self._run = run

    def put(self, stage: str, document: Document, suffix: str | None = None) -> Path:
        """Write a document and return where it is: ``<stage><suffix>``, or ``<stage>-2<suffix>`` for a second one.

        Mappings and models become JSON (YAML for ``.yml``); text and bytes are written as they are. The default suffix
        is ``.yml`` for ``spec`` and ``lock``, ``.txt`` for text and bytes, ``.json`` for the rest.
        Raises KitError(INTERNAL): ``record.secret`` when the document holds what looks like a key or token (nothing is
        written), ``record.write`` when the disk refuses.
        """
        if not _STAGE_NAME.fullmatch(stage):
            raise ValueError(f"not a stage name: {stage!r}")
        if suffix is None:
            suffix = _SUFFIXES.get(stage, ".txt" if isinstance(document, str | bytes) else ".json")
        plain = document.model_dump(mode="json", by_alias=True) if isinstance(document, BaseModel) else document
        if stage in _DONE:
            plain = guard.redact_document(plain)
        if found := guard.secrets_in(plain):
            raise _secret(self.path / f"{stage}{suffix}", found)
        path = self._free(stage, suffix)
        files.write_atomic(path, _encode(plain, suffix))
        return path

    def append(self, name: str, document: BaseModel | Mapping[str, Any]) -> None:
        """Add one line to ``<name>.jsonl``. What looks like a secret is redacted, not refused: events arrive while a
        host is being changed, and stopping half-way would be worse. Raises KitError(INTERNAL, ``record.write``)."""
        plain = document.model_dump(mode="json", by_alias=True) if isinstance(document, BaseModel) else document
        files.append_line(self.path / f"{name}.jsonl", _json(guard.redact_document(plain)))

    def event(self, document: BaseModel | Mapping[str, Any]) -> None:
        """Add one line to ``events.jsonl``; see :meth:`append`."""
        self.append(EVENTS.removesuffix(".jsonl"), document)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage. Its failures are kept, also when it ends in an exception; the sums are written after it.

        Raises what the body raises, and KitError(INTERNAL, ``record.write``).
        """
        begun = time.monotonic()
        self._line(name, "begin")
        try:
            yield
        except BaseException as error:
            self._line(name, "end", time.monotonic() - begun, "failed", _failures_of(error, name))
            self._run.seal()
            raise
        self._line(name, "end", time.monotonic() - begun, "ok")
        self._run.seal()

    def _line(
        self,
        name: str,
        event: Literal["begin", "end"],
        seconds: float | None = None,
        outcome: Literal["ok", "failed"] | None = None,
        failures: tuple[Failure, ...] = (),
    ) -> None:
        line = StageLine(
            stage=name,
            event=event,
            at=_now(),
            offset_s=round(time.monotonic() - self._run.begun, 4),
            seconds=None if seconds is None else round(seconds, 4),
            outcome=outcome,
            failures=failures,
        )
        text = _json(guard.redact_document(line.model_dump(mode="json", exclude_none=True)))
        files.append_line(self.path / STAGES, text, durable=True)

    def _free(self, stage: str, suffix: str) -> Path:
        path = self.path / f"{stage}{suffix}"
        number = 1
        while path.exists():
            number += 1
            path = self.path / f"{stage}-{number}{suffix}"
        return path


class Run(Room):
    """The record of one command. As a context manager it is finished, whatever happens, with what happened."""

    def __init__(self, path: Path, document: RunDocument) -> None:
        super().__init__(self, path)
        self.begun = time.monotonic()
        self._document = document
        self._hosts: dict[str, Room] = {}
        self._lock = threading.RLock()
        self._sums: dict[str, tuple[int, int, str]] = {}

    @classmethod
    def create(cls, task: str, argv: Sequence[str], runs_dir: Path) -> Self:
        """Make ``<runs_dir>/<UTC yyyymmddThhmmssZ>-<6 hex>/`` with ``run.json``, and point ``latest`` at it.

        Secrets in ``argv`` are replaced. Raises KitError(INTERNAL, ``record.write``).
        """
        files.make_directory(runs_dir)
        started = datetime.now(UTC)
        while True:
            path = runs_dir / f"{started:%Y%m%dT%H%M%SZ}-{secrets.token_hex(3)}"
            try:
                files.make_directory(path, exist_ok=False)
                break
            except FileExistsError:
                continue
        document = RunDocument(
            id=path.name, task=task, argv=guard.redact_argv(argv), started=started.isoformat(timespec="milliseconds"),
            **environment.describe(),
        )  # fmt: skip
        run = cls(path, document)
        files.write_atomic(path / RUN, _encode(document.model_dump(mode="json"), ".json"))
        run.seal()
        files.point(runs_dir / "latest", path.name)
        return run

    @property
    def id(self) -> str:
        """The folder's name."""
        return self.path.name

    @property
    def task(self) -> str:
        """The command."""
        return self._document.task

    @property
    def finished(self) -> bool:
        """Whether :meth:`finish` has been called."""
        return self._document.finished is not None

    def host(self, name: str) -> Room:
        """The folder of one host, made at the first call. Raises KitError(INTERNAL, ``record.write``)."""
        if not _HOST_NAME.fullmatch(name):
            raise ValueError(f"not a host name: {name!r}")
        with self._lock:
            if name not in self._hosts:
                files.make_directory(self.path / "hosts" / name)
                self._hosts[name] = Room(self, self.path / "hosts" / name)
            return self._hosts[name]

    def finish(
        self, exit_code: int, failures: Sequence[Failure] = (), hosts: Mapping[str, int | HostOutcome] | None = None
    ) -> None:
        """Say how the run and each host ended, and write the last sums. Raises KitError(INTERNAL, ``record.write``)."""
        ends = {
            name: HostEnd(exit_code=int(end.exit_code), failures=_redacted(end.failures))
            if isinstance(end, HostOutcome)
            else HostEnd(exit_code=int(end))
            for name, end in (hosts or {}).items()
        }
        self._document = self._document.model_copy(
            update={
                "finished": _now(),
                "seconds": round(time.monotonic() - self.begun, 3),
                "exit_code": int(exit_code),
                "failures": _redacted(failures),
                "hosts": ends,
            }
        )
        content = _encode(self._document.model_dump(mode="json"), ".json")
        # Sums first: a kill between the two leaves an unfinished run, never a finished one with sums that disagree.
        self.seal(coming={RUN: content})
        files.write_atomic(self.path / RUN, content)

    def seal(self, coming: Mapping[str, bytes] | None = None) -> None:
        """Rewrite ``SHA256SUMS`` (``sha256sum -c`` reads it) over all files there are now, whoever wrote them.

        ``coming`` names files about to be replaced, with their new content.
        Raises KitError(INTERNAL, ``record.write``).
        """
        with self._lock:
            try:
                lines = dict(self._digests())
            except OSError as error:
                raise files.write_failed(self.path / files.SUMS, error) from error
            lines.update({name: files.bytes_sha256(content) for name, content in (coming or {}).items()})
            files.write_atomic(self.path / files.SUMS, files.sums_text(lines).encode("utf-8", "surrogateescape"))

    def _digests(self) -> Iterator[tuple[str, str]]:
        for name, path in files.record_files(self.path, DERIVED).items():
            try:
                status = path.stat()
                known = self._sums.get(name)
                # Ansible writes files here too; only those that look changed are read again.
                if known is None or known[:2] != (status.st_size, status.st_mtime_ns):
                    known = (status.st_size, status.st_mtime_ns, files.file_sha256(path))
                    self._sums[name] = known
            except FileNotFoundError:
                continue  # A temporary file of another process, gone between the listing and here.
            yield name, known[2]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self.finished:
            return
        if error is None:
            self.finish(ExitCode.OK)
        elif isinstance(error, KitError):
            try:
                self.finish(error.exit_code, error.failures)
            except KitError as unwritten:
                raise KitError([*error.failures, *unwritten.failures], error.exit_code) from error
        elif isinstance(error, KeyboardInterrupt):
            self.finish(getattr(error, "exit_code", 130), _failures_of(error, self._document.task))
        else:
            self.finish(ExitCode.INTERNAL, _failures_of(error, self._document.task))


def _failures_of(error: BaseException, where: str) -> tuple[Failure, ...]:
    if isinstance(error, KitError):
        return _redacted(error.failures)
    if isinstance(error, KeyboardInterrupt):
        return (failure("run.interrupted", where, "a finished run", "stopped from the keyboard", "run it again"),)
    found = guard.redact(f"{type(error).__name__}: {error}")
    return (failure("internal", where, "no exception", found, "report this with the record"),)


def _redacted(failures: Sequence[Failure]) -> tuple[Failure, ...]:
    return tuple(Failure.model_validate(guard.redact_document(f.model_dump())) for f in failures)


def _secret(path: Path, found: Sequence[guard.Secret]) -> KitError:
    return KitError(
        [
            failure(
                "record.secret",
                f"{path.name}{one.path if one.path.startswith('.') else f' {one.path}'}",
                "no secret in a record",
                f"what looks like a {one.kind}; nothing was written",
                "take it out of the spec or of the file on the host that it was read from",
            )
            for one in found
        ],
        ExitCode.INTERNAL,
    )


def _encode(plain: Any, suffix: str) -> bytes:
    """Bytes of a document. NaN is refused: a record holds numbers or null."""
    if isinstance(plain, bytes):
        return plain
    if isinstance(plain, str):
        return plain.encode("utf-8", "backslashreplace")
    if suffix in (".yml", ".yaml"):
        return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True).encode()
    # msgspec indents at C speed what json alone would indent in Python: documents of 256 CPUs are large.
    return msgspec.json.format(_json(plain), indent=1) + b"\n"


def _json(plain: Any) -> bytes:
    """On one line. A file name or argument that is not UTF-8 comes with lone surrogates, which no reader need take: they
    are kept as the text ``\\udcXX``."""
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False)
    return _LONE.sub(lambda one: rf"\\u{ord(one[0]):04x}", text).encode()


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
