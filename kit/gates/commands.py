"""``invoke smoke``, ``reference.*`` and ``prompts.pin``. Edge."""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from kit import paths
from kit.engine.commands import engine_python
from kit.engine.load import folders, load_profile
from kit.engine.model import EngineProfile
from kit.errors import ExitCode, KitError, failure
from kit.gates import pinned, reference_store
from kit.gates import run as gates
from kit.gates.gather import local, numeric
from kit.gates.gather.client import Engine
from kit.gates.gather.site import LocalSite, Site
from kit.gates.identity import Identity, Pass, grant
from kit.gates.limits import load_limits
from kit.gates.names import GATES, GateName
from kit.gates.reference import Reference, differences
from kit.gates.table import as_json, junit, table
from kit.gates.verdict import GateResult, overall
from kit.outcome import HostOutcome, Outcome
from kit.record import guard
from kit.record.store import Run

log = logging.getLogger("kit.gates")


@dataclass
class Subject:
    """An engine to be gated, and how to learn what it is."""

    name: str
    url: str
    profile: EngineProfile
    site: Site
    key: str | None = None
    seats: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    slots: tuple[str, ...] | None = None
    interfaces: tuple[int | None, int | None] = (None, None)

    def identity(self) -> Identity:
        """Read anew each time."""
        raise NotImplementedError


@dataclass
class LocalSubject(Subject):
    """On this machine."""

    pid: int = 0

    def identity(self) -> Identity:
        return local.identity(self.name, self.profile, self.pid)


def local_subject(url: str, profile: EngineProfile, engine_log: Path | None, key: str | None = None) -> LocalSubject:
    """Raises KitError(USAGE) for a URL that is not of this machine, KitError(UNREACHABLE) when nothing listens."""
    match = re.fullmatch(r"http://(127\.0\.0\.\d+|localhost|\[::1\]):(\d{1,5})/?", url)
    if not match:
        step = "another machine's engine is gated by --host"
        raise KitError(failure("smoke.url", "--url", "http://127.0.0.1:PORT", url, step), ExitCode.USAGE)
    pid = local.listener(int(match[2]))
    return LocalSubject("loopback", url.rstrip("/"), profile, LocalSite("loopback", pid, engine_log), key, pid=pid)


def gate(subject: Subject, run: Run, only: Sequence[GateName] = ()) -> tuple[tuple[GateResult, ...], Pass | None, HostOutcome]:
    """All gates of one engine, recorded; a pass only when every required gate passed on an engine that stayed what it was."""
    room, fleet, profile = run.host(subject.name), folders(), subject.profile
    before = subject.identity()
    room.put("identity", before)
    own = reference_store.find(fleet, profile.numerics)
    other = reference_store.find(fleet, profile.agrees_with) if profile.agrees_with else own
    prompts = pinned.load_prompts(profile.gates.prompts, fleet)
    own = own if own is not None and own.prompts_sha256 == prompts.sha256() else None
    began = time.monotonic()
    with Engine(subject.url, subject.key) as engine:
        bench = gates.Bench(
            profile=profile, limits=load_limits(profile.name, fleet), engine=engine, site=subject.site, prompts=prompts,
            reference=own, forced=other, room=room, seats=subject.seats, slots=subject.slots, interfaces=subject.interfaces,
        )  # fmt: skip
        results = gates.run(bench, only)
    seconds = time.monotonic() - began
    room.put("gates", as_json(results))
    text = subject.site.log()
    if text is not None:
        room.put("engine-log", guard.redact(text))
    code, failures = overall(only or profile.gates.required, results)
    passed = None
    if not only:
        made = grant(before, subject.identity(), profile.gates.required, results, run.id, time.time())
        if isinstance(made, Pass):
            passed = made
            room.put("pass", passed)
        elif code == ExitCode.OK:
            code, failures = ExitCode.INCONCLUSIVE, made
    shown = table(results, seconds)
    result = {"gates": as_json(results), "seconds": round(seconds, 1), "passed": passed is not None, "table": shown}
    return results, passed, HostOutcome(code, result, failures)


def smoke_url(url: str, profile: str, engine_log: str, only: str, junit_file: Path | None) -> Outcome:
    """The gates of a profile against an engine on this machine."""
    names = gates_named(only)
    with Run.create("smoke", sys.argv, paths.runs_dir()) as run:
        subject = local_subject(url, load_profile(profile, folders()), Path(engine_log) if engine_log else None)
        results, _, outcome = gate(subject, run, names)
        return _finish("smoke", run, {subject.name: outcome}, [(subject.name, results)], junit_file)


def gates_named(text: str) -> tuple[GateName, ...]:
    """Gates by comma; none for an empty text. Raises KitError(USAGE) for one that there is not."""
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [name for name in names if name not in GATES]
    if unknown:
        raise KitError(
            failure("smoke.only", "--only", f"of {', '.join(GATES)}", ", ".join(unknown), "name gates"), ExitCode.USAGE
        )
    return cast(tuple[GateName, ...], names)


def _finish(
    task: str,
    run: Run,
    hosts: Mapping[str, HostOutcome],
    suites: Sequence[tuple[str, Sequence[GateResult]]],
    junit_file: Path | None,
) -> Outcome:
    xml = junit(suites)
    run.put("gates-junit", xml, ".xml")
    if junit_file is not None:
        junit_file.write_text(xml)
    text = "\n".join(f"{name}\n{outcome.result['table']}" for name, outcome in hosts.items())
    whole = {
        name: HostOutcome(one.exit_code, {k: v for k, v in one.result.items() if k != "table"}, one.failures)
        for name, one in hosts.items()
    }
    run.finish(max((one.exit_code for one in whole.values()), default=0), (), whole)
    return Outcome(task, whole, result={"record": str(run.path)}, text=f"{text}\nrecord {run.path}")


def record_reference(url: str, profile: str, key: str, reason: str, write: bool, folder: str = "") -> Outcome:
    """Decode the pinned prompts and say what would become the reference; ``write`` signs and stores it."""
    chosen = load_profile(profile, folders())
    fleet = Path(folder).absolute() if folder else paths.ROOT / "fleet"
    with Run.create("reference.record", sys.argv, paths.runs_dir()) as run:
        subject = local_subject(url, chosen, None)
        prompts = pinned.load_prompts(chosen.gates.prompts, folders())
        size = chosen.gates.sizes.greedy
        if size is None:
            step = "give its greedy gate a size"
            raise KitError(failure("reference.size", profile, "gates.sizes.greedy", "none", step), ExitCode.USAGE)
        who = subject.identity()
        with Engine(subject.url) as engine:
            outputs, idle = numeric.decode(engine, prompts, size)
            again, _ = numeric.decode(engine, prompts, size)
        before = reference_store.load(fleet, chosen.numerics)
        changed, count = differences(before, outputs)
        made = Reference(
            numerics=chosen.numerics, profile=chosen.name, image_id=who.image_id or "unknown", tokens=size.tokens,
            weights_sha256=who.weights_sha256 or "unknown", argv_sha256=who.argv_sha256 or "unknown", outputs=outputs,
            prompts_sha256=prompts.sha256(), run=run.id, recorded=datetime.now(UTC).isoformat(timespec="seconds"),
            replaces=before.sha256() if before is not None else None, reason=reason,
        )  # fmt: skip
        run.put("reference", made)
        failures = []
        if again != outputs:
            step = "an engine that disagrees with itself gives no reference: is it idle, are its draws the same?"
            failures.append(failure("reference.unstable", profile, "the same output twice", "another the second time", step))
        foreign = (idle.generated or 0) - idle.own
        if idle.generated is None or idle.running_before != 0 or foreign > idle.slack:
            failures.append(
                failure("reference.idle", profile, "an idle engine", f"{foreign} tokens of others", "take it out of the router")
            )
        stored = None
        if not failures and write:
            stored = reference_store.store(fleet, made, Path(key).expanduser())
        code = ExitCode.INCONCLUSIVE if failures else ExitCode.OK if write else ExitCode.CHANGE_PENDING
        run.finish(code, failures)
        words = f"{changed} of {count} prompts change" if before is not None else f"{count} prompts, the first reference"
        text = f"{chosen.numerics}: {words}; " + (
            f"signed and stored: {stored}" if stored else "nothing written; --write stores it"
        )
        return Outcome(
            "reference.record",
            result={"changed": changed, "prompts": count, "stored": str(stored or ""), "record": str(run.path)},
            failures=tuple(failures),
            exit_code=code,
            text=text,
        )


def pin_prompts(name: str, model: Path, text: Path, short: str, long: str, about: str, python: str) -> Outcome:
    """Make a file of pinned prompts."""
    interpreter = engine_python(python)
    if interpreter is None:
        raise KitError(failure("engine.python", "--python", "the engine's Python", "none", "give it"), ExitCode.USAGE)
    path, made = pinned.pin(name, model, text, _shape("short", short), _shape("long", long), interpreter, about, folders()[-1])
    words = f"{path}: {len(made.short)} short and {len(made.long)} long prompts, sha256 {made.sha256()[:12]}"
    return Outcome("prompts.pin", result={"path": str(path), "sha256": made.sha256()}, text=words)


def _shape(option: str, text: str) -> tuple[int, int]:
    match = re.fullmatch(r"(\d{1,6})x(\d{1,7})", text)
    if not match:
        raise KitError(failure("cli.bad_value", f"--{option}", "COUNTxTOKENS", repr(text), "e.g. 32x64"), ExitCode.USAGE)
    return int(match[1]), int(match[2])
