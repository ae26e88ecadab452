"""The few words and numbers that every report uses alike. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from kit.plan.model import Action, Plan, Step
from kit.plan.render import cpu_list

SYMBOLS: Mapping[Action, str] = {Action.KEEP: "=", Action.CHANGE: "~", Action.REFUSE: "x", Action.REBOOT: "!"}
"""One plain character an action, so that a plan reads without colour, in a log and in a mail."""

_LIST_LENGTH = 24
_OUTCOMES: Mapping[int, str] = {
    0: "ok",
    1: "internal fault",
    2: "usage or spec error",
    3: "change pending",
    4: "refused",
    5: "check failed",
    6: "timeout",
    7: "unreachable",
    8: "outcomes differ",
    9: "rolled back",
    10: "inconclusive",
    11: "apply failed",
    12: "locked by another",
}


def outcome(exit_code: int) -> str:
    """What an exit code means, in two words."""
    if exit_code > 128:
        return f"ended by signal {exit_code - 128}"
    return _OUTCOMES.get(exit_code, f"exit {exit_code}")


def plan_summary(plan: Plan) -> str:
    """``3 change, 0 refuse, 41 keep``; reboots are named when there are some."""
    counts = {action: len(plan.of(action)) for action in Action}
    reboots = f", {counts[Action.REBOOT]} reboot" if counts[Action.REBOOT] else ""
    return f"{counts[Action.CHANGE]} change, {counts[Action.REFUSE]} refuse{reboots}, {counts[Action.KEEP]} keep"


def area(step: Step) -> str:
    """What a step is about: the first part of its id."""
    return step.id.partition(".")[0]


def by_area(steps: Iterable[Step]) -> dict[str, list[Step]]:
    """Steps by area, areas in the order of their first step."""
    areas: dict[str, list[Step]] = {}
    for step in steps:
        areas.setdefault(area(step), []).append(step)
    return areas


def alike(steps: Iterable[Step]) -> list[tuple[Step, ...]]:
    """Steps that say the same of several things (one silent driver, twenty things unread), together; files each alone."""
    groups: dict[object, list[Step]] = {}
    for step in steps:
        key = step.id if step.file else (step.action, step.reason, step.found, step.next)
        groups.setdefault(key, []).append(step)
    return [tuple(group) for group in groups.values()]


def steps_json(plan: Plan) -> list[dict[str, Any]]:
    """The ``steps`` of the JSON answer."""
    return [
        {
            "id": step.id,
            "action": step.action.value,
            "reason": step.reason,
            "expected": step.expected,
            "found": step.found,
            "next": step.next,
            "path": step.file.path if step.file else None,
            "sha256": step.file.sha256 if step.file else None,
        }
        for step in plan.steps
    ]


def seconds(value: float | None) -> str:
    """``0.4 s``, ``12 s``, ``3 min 20 s``, ``2 h 05 min``; ``not ended`` for None."""
    if value is None:
        return "not ended"
    if value < 9.95:
        return f"{value:.1f} s" if value >= 0.095 else f"{value * 1000:.0f} ms"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def moment(iso: str) -> str:
    """``2026-11-29 19:40:11 UTC`` from a recorded time; the text itself when it is none."""
    try:
        return f"{datetime.fromisoformat(iso).astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    except ValueError:
        return iso


def ranges(numbers: Iterable[int]) -> str:
    """``0-3, 8``: the kernel's CPU lists, with spaces, or ``1, 129`` would read as a number. ``none`` when there is none."""
    return cpu_list(numbers).replace(",", ", ") or "none"


def grouped(values: Sequence[tuple[int, str]], one: str, many: str) -> str:
    """Equal values together: ``148 (all 4 GPUs)``, or ``GPUs 0-2: 148; GPU 3: 146``."""
    if not values:
        return f"no {one}"
    groups: dict[str, list[int]] = {}
    for index, value in values:
        groups.setdefault(value, []).append(index)
    if len(groups) == 1:
        only = next(iter(groups))
        return only if len(values) == 1 else f"{only} (all {len(values)} {many})"
    return "; ".join(f"{_who(who, one, many)}: {value}" for value, who in groups.items())


def _who(numbers: Sequence[int], one: str, many: str) -> str:
    """A list too long to read is counted."""
    text = ranges(numbers)
    return f"{len(numbers)} {many}" if len(text) > _LIST_LENGTH else f"{one if len(numbers) == 1 else many} {text}"
