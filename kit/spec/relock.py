"""``invoke fleet.lock``: an accepted host's versions become the fleet's. An edge: probes one host, writes ``lock.yml``."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString

from kit.apply.ssh import Remote
from kit.errors import ExitCode, Failure, KitError, failure
from kit.facts.collect import collect
from kit.facts.model import Facts, GpuStack, Package
from kit.facts.unknown import Unknown, is_known
from kit.files import replace
from kit.outcome import HostOutcome, Outcome
from kit.plan.make import make_plan
from kit.plan.model import Action
from kit.plan.wanted import wanted as planned
from kit.spec.load import shown
from kit.spec.model import HostSpec, Lock
from kit.spec.target import Target

log = logging.getLogger("kit.spec.relock")


@dataclass(frozen=True)
class Move:
    """A version that would change. ``key`` is ``driver``, ``fabric_manager`` or ``packages.NAME``."""

    key: str
    old: str | None
    new: str


def moves(lock: Lock, facts: Facts, packages: Sequence[str], fabric_manager: bool = True) -> tuple[list[Move], list[str]]:
    """What the host's versions would move in the lock, and what could not be told (which stays as it is). Pure."""
    found: list[Move] = []
    untold: list[str] = []

    def compare(key: str, old: str | None, new: str | Unknown) -> None:
        if not is_known(new):
            untold.append(f"{key} stays {old or 'null'}: {new}")
        elif new != old:
            found.append(Move(key, old, new))

    stack: GpuStack | Unknown = facts.gpu
    compare("driver", lock.driver, stack.driver_version if is_known(stack) else stack)
    if fabric_manager:
        compare("fabric_manager", lock.fabric_manager, stack.fabric_manager_version if is_known(stack) else stack)
    for name in packages:
        package: Package | Unknown = facts.packages.get(name, Unknown(unknown="the probe did not tell"))
        compare(f"packages.{name}", lock.packages.get(name), package.version if is_known(package) else package)
    return found, untold


def moved(lock: Lock, changes: Sequence[Move]) -> Lock:
    """The lock as it would be. Pure."""
    packages = {**lock.packages, **{c.key.partition(".")[2]: c.new for c in changes if c.key.startswith("packages.")}}
    own = {change.key: change.new for change in changes if "." not in change.key}
    return lock.model_copy(update={**own, "packages": packages})


def unaccepted(spec: HostSpec, lock: Lock, facts: Facts, changes: Sequence[Move]) -> list[Failure]:
    """Why the host is not accepted: what its plan would refuse even with the moved lock. Pure."""
    refused = make_plan(spec, moved(lock, changes), facts).of(Action.REFUSE)
    return [failure(f"plan.{s.id}", f"{spec.name}: {s.id}", s.expected, s.found or s.reason, s.next) for s in refused]


class _Representer(RoundTripRepresenter):
    """``null`` stays a word: a value left blank looks forgotten."""


def _null(representer: RoundTripRepresenter, _: None) -> ScalarNode:
    return representer.represent_scalar("tag:yaml.org,2002:null", "null")


_Representer.add_representer(type(None), _null)


def apply(text: str, changes: Sequence[Move]) -> str:
    """The lock's text with the moves made, its comments kept. Pure."""
    editor = YAML()  # round trip: constructs plain containers that remember their comments
    editor.Representer = _Representer
    editor.preserve_quotes = True
    editor.width = 4096
    document = editor.load(text)
    if document.get("packages") is None:
        document["packages"] = {}
    for change in changes:
        # Quoted always: 1.10 must stay text.
        value = DoubleQuotedScalarString(change.new)
        area, _, name = change.key.partition(".")
        if name:
            document["packages"][name] = value
        else:
            document[area] = value
    out = io.StringIO()
    editor.dump(document, out)
    return out.getvalue()


def lock_from(targets: Sequence[Target], check: bool) -> Outcome:
    """Compare, and without ``check`` write. Exit 3 when ``check`` finds something to move.

    Raises KitError(USAGE) unless exactly one host is named: two hosts may disagree; KitError(REFUSED) when it is not an
    accepted host, with every refusal of its plan that its own versions in the lock would not settle.
    """
    if len(targets) != 1:
        found = ", ".join(target.name for target in targets)
        raise KitError(failure("cli.bad_value", "--host", "one host", found, "name the one that was accepted"), ExitCode.USAGE)
    target = targets[0]
    path = target.source.parent.parent / "lock.yml"
    wanted = dict.fromkeys((*target.lock.packages, *target.spec.packages.hold, *target.spec.gpus.driver.packages))
    remote = Remote(target.spec.connection, target.name, target.fleet.ssh_connect_timeout_s)
    log.info("%s: reading versions", target.name)
    request = planned(target.spec)
    request = request.model_copy(update={"packages": tuple(sorted({*request.packages, *wanted}))})
    facts, _ = collect(target, request, remote)
    changes, untold = moves(target.lock, facts, tuple(wanted), target.spec.gpus.driver.fabric_manager)
    if refused := unaccepted(target.spec, target.lock, facts, changes):
        raise KitError(refused, ExitCode.REFUSED)
    if changes and not check:
        _write(path, apply(path.read_text(encoding="utf-8"), changes))
    host = HostOutcome(_code(check, changes, untold), {"moves": [asdict(change) for change in changes]})
    verb = "would move" if check else "moved"
    lines = [f"{shown(path)}: {verb} {change.key}: {change.old or 'null'} -> {change.new}" for change in changes]
    text = "\n".join(lines or [f"{shown(path)}: nothing to move"])
    return Outcome("fleet.lock", {target.name: host}, result=_told(path, check, changes), skipped=tuple(untold), text=text)


def _code(check: bool, changes: Sequence[Move], untold: Sequence[str]) -> ExitCode:
    """A comparison in which something could not be read did not find the lock to be right."""
    if check and changes:
        return ExitCode.CHANGE_PENDING
    return ExitCode.INCONCLUSIVE if untold and (check or not changes) else ExitCode.OK


def _told(path: Path, check: bool, changes: Sequence[Move]) -> Mapping[str, object]:
    return {"lock": path, "written": bool(changes) and not check}


def _write(path: Path, text: str) -> None:
    try:
        replace(path, text.encode())
    except OSError as error:
        raise KitError(
            failure("fleet.write", shown(path), "a file written", error.strerror or str(error), "correct that and run it again"),
            ExitCode.INTERNAL,
        ) from error
