"""The JSON envelope of every command (a contract, see docs/architecture.md). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from kit.cli.exit import of_outcome
from kit.errors import Failure
from kit.outcome import Outcome
from kit.report.clean import one_line

SCHEMA_VERSION = 1


def exit_code(outcome: Outcome) -> int:
    """The process exit status that an outcome means."""
    return of_outcome(int(outcome.exit_code), [int(host.exit_code) for host in outcome.hosts.values()])


def envelope(outcome: Outcome) -> dict[str, Any]:
    """The one document a command prints with ``--format json``; ``ok`` is true exactly when the exit status is 0."""
    failures: list[Failure] = [*outcome.failures, *(f for host in outcome.hosts.values() for f in host.failures)]
    hosts = {name: {**host.result, "exit_code": int(host.exit_code)} for name, host in outcome.hosts.items()}
    code = exit_code(outcome)
    return {
        "schema_version": SCHEMA_VERSION,
        "ok": code == 0,
        "task": outcome.task,
        "hosts": list(outcome.hosts),
        "result": {**outcome.result, "exit_code": code, **({"hosts": hosts} if hosts else {})},
        "failures": [failure.model_dump(mode="json") for failure in dict.fromkeys(failures)],
        "skipped": list(outcome.skipped),
    }


def to_json(document: Mapping[str, Any]) -> str:
    """Indented JSON and a newline. Raises ValueError for NaN and infinities, TypeError for what JSON cannot say."""
    return json.dumps(document, indent=2, allow_nan=False, default=_plain) + "\n"


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence | set | frozenset):
        return list(value)
    raise TypeError(f"{type(value).__name__} in a result has no form in JSON")


def failure_lines(outcome: Outcome) -> list[str]:
    """For the terminal: each failure once, the host named when its text does not, nothing in it that acts on a terminal. What
    the shown plan refuses is only counted: the plan says it better, and twice is a wall."""
    lines = [failure.text() for failure in _one_next(outcome.failures)]
    for name, host in outcome.hosts.items():
        refused = [f for f in host.failures if outcome.text and f.code.startswith("plan.")]
        if refused:
            lines.append(
                f"{name}: refused for {len(refused)} reason{'s' * (len(refused) > 1)}, shown with the plan; nothing was applied"
            )
        left = _one_next([f for f in host.failures if f not in refused])
        lines += [f.text() if f.where.startswith(name) else f"{name}: {f.text()}" for f in left]
    return list(dict.fromkeys(one_line(line) for line in lines))


def _one_next(failures: Sequence[Failure]) -> list[Failure]:
    """A next step that several in a row share is told with the last of them."""
    each = list(dict.fromkeys(failures))
    return [
        one.model_copy(update={"next": ""}) if later is not None and later.next == one.next else one
        for one, later in zip_longest(each, each[1:])
    ]
