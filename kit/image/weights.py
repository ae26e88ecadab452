"""``weights.push`` and ``weights.verify``: a model's folder onto hosts, an artifact of its own."""

from __future__ import annotations

import getpass
import hashlib
import json
import socket
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from kit.apply import ansible
from kit.apply.ssh import host_lock
from kit.errors import ExitCode, KitError, failure
from kit.facts.collect import run_script
from kit.image import onhost
from kit.image.base import sha256_file
from kit.image.commands import log
from kit.image.model import Sha256
from kit.image.onhost.weights import sampled
from kit.image.push import teller
from kit.outcome import Outcome
from kit.paths import cache_dir
from kit.spec.target import Target
from kit.work import Work, each, finish, forks, recorded, remote

PUSH, VERIFY = "weights.push", "weights.verify"
_LOOK_S, _FULL_S = 300.0, 7200.0
ROOM = 2
"""Times what is still to be sent that must be free first: a full disk leaves no room for what the engine compiles."""


class File(BaseModel):
    """One file of a model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    path: str
    bytes: int
    sha256: Sha256
    sampled_sha256: Sha256


class There(BaseModel):
    """What a host says; see kit/image/onhost/weights.py."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    states: dict[str, str]
    extra: tuple[str, ...]
    free_bytes: int


def manifest(source: Path) -> tuple[File, ...]:
    """Every file of a model's folder with its hashes; full hashes are remembered by size and time, so a second look is quick.

    Raises KitError(USAGE) for a folder that is absent or empty.
    """
    paths = sorted(path for path in source.rglob("*") if path.is_file()) if source.is_dir() else []
    if not paths:
        raise KitError(failure("weights.source", str(source), "a model's folder", "no file in it", "name it"), ExitCode.USAGE)
    cache = cache_dir() / "weights.json"
    known: dict[str, str] = json.loads(cache.read_text()) if cache.is_file() else {}
    keys = {path: _key(path) for path in paths}
    fresh = [path for path in paths if keys[path] not in known]
    if fresh:
        log.info("hashing %d files", len(fresh))
    with ThreadPoolExecutor(4) as pool:
        known |= dict(zip((keys[path] for path in fresh), pool.map(sha256_file, fresh), strict=True))
    if fresh:
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps(known))
    return tuple(
        File(
            path=str(path.relative_to(source)),
            bytes=path.stat().st_size,
            sha256=known[keys[path]],
            sampled_sha256=sampled(path),
        )
        for path in paths
    )


def _key(path: Path) -> str:
    status = path.stat()
    return f"{path.resolve()} {status.st_size} {status.st_mtime_ns} {status.st_ino}"


def identity(files: Sequence[File]) -> str:
    """One hash over names, sizes and full hashes. Pure."""
    return hashlib.sha256(json.dumps([file.model_dump(mode="json") for file in files], sort_keys=True).encode()).hexdigest()


def folder_on(target: Target, name: str) -> str:
    """Where a model lies on a host."""
    return f"{target.spec.data_dir}/models/{name}"


def _look(one: Work, name: str, files: Sequence[File], full: bool) -> There:
    script = (Path(onhost.__file__).parent / "weights.py").read_bytes()
    asked = {"folder": folder_on(one.target, name), "files": [f.model_dump(mode="json") for f in files], "full": full}
    return There.model_validate(run_script(remote(one.target), script, json.dumps(asked), _FULL_S if full else _LOOK_S))


def _checked(one: Work, name: str, there: There, states: Mapping[str, str]) -> None:
    """Raises KitError(REFUSED) for a folder that holds another model: nothing is overwritten."""
    other = {path: said for path, said in states.items() if said not in ("good", "absent")}
    if other or there.extra:
        found = "; ".join([*(f"{path} {said}" for path, said in other.items()), *(f"{p} is not of it" for p in there.extra)][:3])
        step = "give it another --name, or remove the folder on the host"
        where = f"{one.name}: {folder_on(one.target, name)}"
        raise KitError(failure("weights.other", where, "this model, or nothing", found, step), ExitCode.REFUSED)


def push(targets: Sequence[Target], source: str, name: str) -> Outcome:
    """Look, send the files that are missing (each goes on where it was cut), look again by full hash of what was sent."""
    folder = Path(source).expanduser()
    files = manifest(folder)
    with recorded(PUSH, targets) as (run, work), ExitStack() as locks:
        jobs: dict[Target, dict[str, Any]] = {}
        who = f"{getpass.getuser()}@{socket.gethostname()} {PUSH} {run.id}"

        def decide(one: Work) -> None:
            there = _look(one, name, files, full=False)
            _checked(one, name, there, there.states)
            absent = [file for file in files if there.states[file.path] == "absent"]
            size = sum(file.bytes for file in absent)
            one.result.update(path=folder_on(one.target, name), weights_sha256=identity(files), sent_bytes=size)
            run.host(one.name).put("weights", {"files": [f.model_dump(mode="json") for f in files], "states": there.states})
            if not absent:
                return
            if there.free_bytes < ROOM * size:
                where, expected = f"{one.name}: {folder_on(one.target, name)}", f"{ROOM * size / 1e9:.1f} GB free"
                found = f"{there.free_bytes / 1e9:.1f} GB"
                raise KitError(failure("weights.no_space", where, expected, found, "free space there"), ExitCode.REFUSED)
            locks.enter_context(host_lock(remote(one.target), who))
            send = [{"src": str(folder / f.path), "path": f.path, "bytes": f.bytes, "sha256": f.sha256} for f in absent]
            jobs[one.target] = {"weights_folder": folder_on(one.target, name), "weights_send": send}

        each(work, forks(targets), decide)
        if jobs:
            with run.stage("deliver"):
                results = ansible.play("weights", jobs, run.path, teller(run), forks(list(jobs)))

            def confirm(one: Work) -> None:
                result = results[one.name]
                run.host(one.name).put("recap", result)
                if result.failures:
                    raise KitError(list(result.failures), result.exit_code)
                _judge(one, name, _look(one, name, files, full=False))

            each([one for one in work if one.target in jobs and not one.failures], forks(list(jobs)), confirm)
        lines = [f"{w.name}: {w.result['path']}: {w.result['sent_bytes'] / 1e6:.0f} MB sent" for w in work if not w.failures]
        return finish(PUSH, run, work, "\n".join(lines))


def _judge(one: Work, name: str, there: There) -> None:
    place = f"{one.name}: {folder_on(one.target, name)}"
    bad = [
        failure("weights.file", f"{place}/{path}", "as in the manifest", said, "invoke weights.push")
        for path, said in there.states.items()
        if said != "good"
    ]
    bad += [failure("weights.extra", f"{place}/{path}", "no such file", "there", "remove it") for path in there.extra]
    if bad:
        raise KitError(bad, ExitCode.GATE_FAILED)


def verify(targets: Sequence[Target], source: str, name: str, full: bool) -> Outcome:
    """Compare a model on hosts with its source's manifest: by size and sampled hash, or in full. Exit 5 when one differs."""
    files = manifest(Path(source).expanduser())
    with recorded(VERIFY, targets) as (run, work):

        def do(one: Work) -> None:
            one.result.update(path=folder_on(one.target, name), weights_sha256=identity(files), full=full)
            _judge(one, name, _look(one, name, files, full))

        each(work, forks(targets), do)
        how = "by full hash" if full else "by size and sampled hash"
        good = [one for one in work if not one.failures]
        lines = [f"{one.name}: {one.result['path']}: {len(files)} files as they should be, {how}" for one in good]
        return finish(VERIFY, run, work, "\n".join(lines))
