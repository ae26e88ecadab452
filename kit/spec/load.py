"""Reads fleet folders: ``fleet.yml``, ``lock.yml``, ``hosts/NAME.yml``. The edge to the file system; decides nothing.

Every failure of every file is reported at once, each with file, line and key.
"""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, TypeVar

from pydantic import BaseModel, ValidationError

from kit.errors import ExitCode, Failure, KitError, failure
from kit.spec import check, explain, strict_yaml
from kit.spec.model import Fleet, FleetFile, HostSpec, Lock
from kit.spec.select import targets

M = TypeVar("M", bound=BaseModel)
_GAP = re.compile(r"\s*([a-z_]+): null # FILL IN")
Names = Mapping[str, Sequence[str]]
"""``engine`` and ``image`` -> the names that there are."""


@dataclass(frozen=True)
class _Read(Generic[M]):
    """One file: the typed value (None when it has failures), and the text's places."""

    file: str
    document: strict_yaml.Document
    value: M | None
    failures: list[Failure]
    gaps: Mapping[int, str] = field(default_factory=dict)
    """Line -> key, of those that say ``null # FILL IN``."""


def shown(path: Path) -> str:
    """The path as an operator would type it: relative to the current folder when it lies below."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


@dataclass(frozen=True)
class Reading:
    """A fleet folder as far as it can be used: one host's bad file does not take the others with it."""

    fleet: Fleet
    """Of the hosts whose files are valid. Groups may name others too."""
    broken: Mapping[str, tuple[Failure, ...]]
    """Host (its file's name without ``.yml``) -> what is wrong with it."""


def load_usable(directories: Sequence[Path]) -> list[Reading]:
    """Read several fleet folders for work on some of their hosts.

    Raises KitError(USAGE) with what concerns every host: ``fleet.yml``, ``lock.yml``, a folder, one name in two fleets.
    """
    found, failures = [], list[Failure]()
    for directory in directories:
        contents = _read_fleet(directory)
        # What stops every host stops all: then all is told.
        failures += contents.failures if contents.whole else []
        found += [] if contents.reading is None else [contents.reading]
    if failures:
        raise KitError(failures, ExitCode.USAGE)
    targets([reading.fleet for reading in found])
    return found


def load_fleets(directories: Sequence[Path]) -> list[Fleet]:
    """Read several fleet folders, all or nothing.

    Raises KitError(USAGE) with the failures of all, also when two have a host of one name.
    """
    fleets: list[Fleet] = []
    failures: list[Failure] = []
    for directory in directories:
        try:
            fleets.append(load_fleet(directory))
        except KitError as error:
            failures.extend(error.failures)
    if failures:
        raise KitError(failures, ExitCode.USAGE)
    targets(fleets)
    return fleets


def load_fleet(directory: Path) -> Fleet:
    """Read one fleet folder, all or nothing. Raises KitError(USAGE) with every failure found in it."""
    contents = _read_fleet(directory)
    if contents.failures or contents.reading is None:
        raise KitError(contents.failures, ExitCode.USAGE)
    return contents.reading.fleet


def survey(directory: Path, known: Names) -> tuple[Fleet | None, list[Failure]]:
    """For ``fleet.check``: what of a fleet folder is valid (None when nothing can be), and every failure in it, in one round."""
    contents = _read_fleet(directory)
    named = [f for read in contents.reads.values() for f in _named(read, known)]
    return (contents.reading.fleet if contents.reading else None), [*contents.failures, *named]


def _named(read: _Read[HostSpec], known: Names) -> list[Failure]:
    """Judged from the text, so that a file with other faults tells this one at once."""
    out = []
    for key, names in known.items():
        value = read.document.value.get(key) if isinstance(read.document.value, dict) else None
        if isinstance(value, str) and not any(f.where.endswith(f" {key}") for f in read.failures):
            out += [_place(read, finding) for finding in check.check_name(key, value, names)]
    return out


def _packages(read: _Read[HostSpec]) -> tuple[str, ...]:
    """Judged from the text where it has other faults."""
    if read.value is not None:
        return check.packages(read.value)
    hold = read.document.value
    for key in ("packages", "hold"):
        hold = hold.get(key) if isinstance(hold, dict) else None
    return tuple(dict.fromkeys(one for one in hold if isinstance(one, str))) if isinstance(hold, list) else ()


@dataclass(frozen=True)
class _Contents:
    """All that a fleet folder holds."""

    reading: Reading | None
    whole: list[Failure]
    """Failures that concern every host."""
    failures: list[Failure]
    """All that there are."""
    reads: Mapping[str, _Read[HostSpec]]


def _read_fleet(directory: Path) -> _Contents:
    problem = _no_folder(directory)
    if problem is not None:
        none = failure("spec.no_fleet", shown(directory), "a fleet folder", problem, "create it, or set B300KIT_FLEET")
        return _Contents(None, [none], [none], {})
    file = _read(directory, directory / "fleet.yml", FleetFile)
    lock = _read(directory, directory / "lock.yml", Lock)
    strays: list[Failure] = []
    reads = {path.stem: _read_host(directory, path) for path in _host_files(directory / "hosts", strays)}
    hosts = {stem: read.value for stem, read in reads.items() if read.value is not None}
    broken = {stem: list(read.failures) for stem, read in reads.items() if read.failures or read.value is None}
    unlocked: list[Failure] = []
    if lock.value is not None:
        wanted = {stem: _packages(read) for stem, read in reads.items()}
        unlocked = [_place(lock, finding) for finding in check.check_lock(lock.value, wanted)]
        for stem, packages in wanted.items():
            for finding in check.check_lock(lock.value, {stem: packages}):
                broken.setdefault(stem, []).append(_place(lock, finding))
    doubles: list[Failure] = []
    for stem, (other, finding) in check.check_addresses(hosts).items():
        doubles.append(_place(reads[stem], finding))
        # Which of the two is wrong nobody can tell from here.
        for name in (stem, other):
            broken.setdefault(name, []).append(doubles[-1])
    grouped: list[Failure] = []
    if file.value is not None:
        # A host whose file is broken is told about there, not once more as an unknown member of its group.
        untyped = {repr(stem) for stem, read in reads.items() if read.value is None}
        findings = check.check_fleet(file.value, hosts)
        grouped = [_place(file, f) for f in findings if not (f.code == "spec.unknown_host" and f.found in untyped)]
    folder = [f for f in strays if f.code != "spec.file_name"]
    for stray in (f for f in strays if f.code == "spec.file_name"):
        broken.setdefault(Path(stray.found).stem, []).append(stray)
    whole = [*folder, *file.failures, *lock.failures, *grouped]
    own = [f for read in reads.values() for f in read.failures]
    failures = [*strays, *file.failures, *lock.failures, *own, *doubles, *unlocked, *grouped]
    if file.value is None or lock.value is None:
        return _Contents(None, whole, failures, reads)
    valid = {stem: spec for stem, spec in hosts.items() if stem not in broken}
    fleet = Fleet(directory=str(directory), file=file.value, lock=lock.value, hosts=valid)
    reading = Reading(fleet, {stem: tuple(why) for stem, why in broken.items()})
    return _Contents(reading, whole, failures, reads)


def load_host(path: Path) -> HostSpec:
    """Read one host file by itself. Raises KitError(USAGE) with every failure in it."""
    read = _read_host(path.parent.parent, path)
    if read.value is None or read.failures:
        raise KitError(read.failures, ExitCode.USAGE)
    return read.value


def load_examples(fleet: Fleet, known: Names) -> dict[str, HostSpec]:
    """The files of ``examples/``: there to be copied, held to all that a host's file is held to, and selected by nothing.

    Raises KitError(USAGE) with every failure in them.
    """
    directory, failures = Path(fleet.directory), list[Failure]()
    reads = {path.stem: _read_host(directory, path) for path in _host_files(directory / "examples", failures)}
    for stem, read in reads.items():
        if read.value is not None:
            wanted = {stem: check.packages(read.value)}
            read.failures.extend(_place(read, finding) for finding in check.check_lock(fleet.lock, wanted))
        read.failures.extend(_named(read, known))
    failures += [f for read in reads.values() for f in read.failures]
    if failures:
        raise KitError(failures, ExitCode.USAGE)
    return {stem: read.value for stem, read in reads.items() if read.value is not None}


def _no_folder(path: Path) -> str | None:
    """Why nothing can be listed there; None when it can. A folder that cannot be read is not an empty one."""
    try:
        next(path.iterdir(), None)
    except FileNotFoundError:
        return f"a link to {path.readlink()}, which is not there" if path.is_symlink() else "none"
    except OSError as error:
        return error.strerror or str(error)
    return None


def load_document(directory: Path, path: Path, model: type[M], judge: Callable[[M], Sequence[check.Finding]] | None = None) -> M:
    """Any one file of a fleet folder as its model, and what ``judge`` finds in it. Raises KitError(USAGE) with every failure."""
    read = _read(directory, path, model)
    if read.value is not None and judge is not None:
        read.failures.extend(_place(read, finding) for finding in judge(read.value))
    if read.value is None or read.failures:
        raise KitError(read.failures, ExitCode.USAGE)
    return read.value


def _host_files(folder: Path, failures: list[Failure]) -> list[Path]:
    problem = _no_folder(folder)
    if problem is not None:
        if problem != "none":
            step = "make it a folder that you may read, or take it away when there is no host"
            failures.append(failure("spec.unreadable", shown(folder), "a folder of host files", problem, step))
        return []
    found = []
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name.endswith(("~", ".bak", ".orig", ".swp")):
            continue
        if path.suffix == ".yml":
            found.append(path)
        else:
            failures.append(
                failure("spec.file_name", shown(path), "NAME.yml", path.name, f"rename it to {path.stem}.yml or move it away")
            )
    return found


def _read_host(directory: Path, path: Path) -> _Read[HostSpec]:
    read = _read(directory, path, HostSpec)
    gaps = [f for f in _gaps(read) if f.where not in {told.where for told in read.failures}]
    if gaps:
        # Also where the key may be left out: a proposal's gap is an answer that nobody gave yet.
        read = replace(read, value=None, failures=[*read.failures, *gaps])
    if read.value is not None:
        read.failures.extend(_place(read, finding) for finding in check.check_host(read.value, path.stem))
    return read


def _gaps(read: _Read[HostSpec]) -> list[Failure]:
    """What ``fleet.init`` left to a person and is still left: ``key: null # FILL IN``."""
    out = []
    for path, line in read.document.lines.items():
        if path and line in read.gaps and path[-1] == read.gaps[line]:
            place = explain.where(read.file, line, path)
            out.append(failure("spec.missing_value", place, "a value", "nothing", f"fill in `{path[-1]}`"))
    return out


def _place(read: _Read[M], finding: check.Finding) -> Failure:
    line = explain.line_of(read.document, finding.path)
    place = explain.where(read.file, line, finding.path)
    return failure(finding.code, place, finding.expected, finding.found, finding.next)


def _read(directory: Path, path: Path, model: type[M]) -> _Read[M]:
    file = shown(path)
    text, problem = _text(directory, path)
    if problem is not None:
        return _Read(file, strict_yaml.Document(), None, [problem])
    document = strict_yaml.read(text)
    failures = [failure(p.code, explain.where(file, p.line, p.path), p.expected, p.found, p.next) for p in document.problems]
    told = {p.path for p in document.problems}
    if not document.lines or () in told:
        if not failures:
            failures.append(failure("spec.empty", file, "keys and values", "an empty file", "see fleet/examples/example.yml"))
        return _Read(file, document, None, failures)
    value: M | None = None
    try:
        # Through JSON: strict there still takes a list for a tuple and text for a network, and nothing else.
        value = model.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        failures.extend(explain.explain(error, model, document, file, skip=told))
    gaps = {line: found[1] for line, words in enumerate(text.splitlines(), 1) if (found := _GAP.match(words))}
    return _Read(file, document, value if not failures else None, failures, gaps)


def _text(directory: Path, path: Path) -> tuple[str, Failure | None]:
    """The file's text, or why it was not read: a symlink or folder in its place, too big, not text."""
    file = shown(path)
    try:
        if not path.resolve().is_relative_to(directory.resolve()):
            found = f"a link to {path.resolve()}"
            return "", failure("spec.outside", file, "a file inside the fleet folder", found, "copy it here")
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "", failure("spec.not_a_file", file, "a file", "something else", "replace it by a file")
        if status.st_size > strict_yaml.MAX_BYTES:
            expected = f"at most {strict_yaml.MAX_BYTES} bytes"
            return "", failure("yaml.size", file, expected, f"{status.st_size} bytes", "split or shorten it")
        return path.read_bytes().decode("utf-8-sig"), None
    except FileNotFoundError:
        return "", failure("spec.no_file", file, "this file", "none", "create it; the one in the source tree is an example")
    except UnicodeDecodeError as error:
        return "", failure("yaml.encoding", file, "UTF-8 text", f"byte {error.start} is not", "save it as UTF-8")
    except (OSError, RuntimeError) as error:
        # RuntimeError is what Path.resolve says of links in a circle, before Python 3.13.
        said = getattr(error, "strerror", None) or str(error)
        return "", failure("spec.unreadable", file, "a readable file", said, "make it a plain file that you may read")
