"""Plans, hosts and runs for a terminal. Every function returns text; printing it is the command line's work.

Without a ``where`` the terminal of standard output decides width and colour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from kit.facts.model import Facts
from kit.outcome import HostOutcome
from kit.plan.model import Action, Plan, Step
from kit.report import rows, words
from kit.report.clean import one_line
from kit.report.diff import file_diff
from kit.report.terminal import Look, look, to_text
from kit.report.words import plan_summary, steps_json
from kit.spec.model import HostSpec

__all__ = [
    "facts_summary",
    "host_table",
    "outside_table",
    "plan_summary",
    "plan_text",
    "steps_json",
]

STYLES: Mapping[Action, str] = {
    Action.KEEP: "dim",
    Action.CHANGE: "bold yellow",
    Action.REFUSE: "bold red",
    Action.REBOOT: "bold magenta",
}
_DIFF_STYLES = {"head": "bold", "hunk": "cyan", "add": "green", "drop": "red", "same": "", "note": "italic"}
STACKED_BELOW = 72
"""Columns below which a table would be all line breaks."""
DIFF_LINES = 40
"""Lines of one file's diff shown unless everything is asked for."""


def plan_text(plan: Plan, verbose: bool = False, where: Look | None = None, brief: bool = False) -> str:
    """The dry run: what would change by area with diffs, what is refused, all of it, with the next step.

    What is kept is only counted, unless ``verbose``. ``brief``: a line a change; so it is where something is refused, since
    nothing of it will be done before that is mended. Refusals are always whole.
    """
    brief = brief or plan.refused
    where = where or look()
    parts: list[RenderableType] = [Text.assemble((one_line(plan.host), "bold"), ": ", plan_summary(plan))]
    shown = [s for s in plan.steps if s.action in (Action.CHANGE, Action.REBOOT) or (verbose and s.action is Action.KEEP)]
    for area, steps in words.by_area(shown).items():
        parts += [Text(), Text(one_line(area), style="bold underline" if where.colour else "")]
        if brief and not verbose:
            parts += [_line(step, step.action.value) for step in steps]
            continue
        parts += [part for same in words.alike(steps) for part in _step(same, verbose, where)]
    refused = plan.of(Action.REFUSE)
    if refused:
        head = f"Refused: nothing is applied to {one_line(plan.host)} until these {len(refused)} are mended"
        if len(refused) == 1:
            head = f"Refused: nothing is applied to {one_line(plan.host)} until this is mended"
        parts += [Text(), Text(head, style="bold red")]
        parts += [part for same in words.alike(refused) for part in _step(same, verbose, where)]
    kept = len(plan.of(Action.KEEP))
    if kept and not verbose:
        thing = "1 thing is" if kept == 1 else f"{kept} things are"
        parts += [Text(), Text(f"{thing} as declared already; --verbose shows them", style="dim")]
    return to_text(Group(*parts), where)


def applied_text(before: Plan, after: Plan | None, outcome: str, where: Look | None = None) -> str:
    """What an apply did, a line a step: ``before`` is what was planned, ``after`` the look at the host since (the same plan, or
    none, when there was none)."""
    where = where or look()
    seen = {step.id for step in after.of(Action.KEEP)} if after is not None and after is not before else None
    head = outcome or "what was done is not verified: it was not seen again"
    parts: list[RenderableType] = [Text.assemble((one_line(before.host), "bold"), ": ", head)]
    steps = [s for s in before.steps if s.action in (Action.CHANGE, Action.REBOOT)]
    for area, some in words.by_area(steps).items():
        parts += [Text(), Text(one_line(area), style="bold underline" if where.colour else "")]
        parts += [_line(s, "planned" if seen is None else "changed" if s.id in seen else "FAILED") for s in some]
    return to_text(Group(*parts), where)


def host_table(hosts: Mapping[str, HostOutcome], where: Look | None = None) -> str:
    """One line a host: outcome, changes, seconds, note; those that did not end well first."""
    where = where or look()
    good = sum(end.exit_code == 0 for end in hosts.values())
    ordered = sorted(hosts.items(), key=lambda item: (item[1].exit_code == 0, item[0]))
    body = _host_list(ordered) if where.width < STACKED_BELOW else _host_grid(ordered, where)
    return to_text(Group(body, Text(), Text(f"{good} of {len(hosts)} hosts ended well")), where)


def facts_summary(name: str, facts: Facts, spec: HostSpec | None = None, verbose: bool = False, where: Look | None = None) -> str:
    """What was read, by area. Without ``verbose`` the long areas (services, packages, files, sysctls) are only counted."""
    where = where or look()
    parts: list[RenderableType] = [Text(one_line(name), style="bold")]
    hidden = []
    for part in rows.areas(facts, spec):
        unknown = sum(not row.verified for row in part.rows)
        if part.long and not verbose:
            hidden.append(f"{part.title.lower()} {len(part.rows)}" + (f" ({unknown} not verified)" if unknown else ""))
            continue
        grid = Table.grid(padding=(0, 2))
        grid.add_column(min_width=18, max_width=max(12, where.width // 3), overflow="fold")
        grid.add_column(overflow="fold")
        for row in part.rows:
            value = Text(row.found, style="" if row.verified else "yellow")
            if row.declared:
                value.append(f"  (declared {row.declared})", style="dim")
            grid.add_row(Text(row.label, style="dim"), value)
        parts += [Text(), Text(part.title, style="bold"), Padding(grid, (0, 0, 0, 2))]
    if hidden:
        parts += [Text(), Text(f"Not shown: {', '.join(hidden)}; --verbose shows them", style="dim")]
    return to_text(Group(*parts), where)


def outside_table(summaries: Mapping[str, object], where: Look | None = None) -> str:
    """What the outside suite said of each host. Skipped is its own column: it is never passed."""
    where = where or look()
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("seen from outside")
    for column in ("passed", "failed", "skipped"):
        table.add_column(column, justify="right")
    for name, summary in sorted(summaries.items()):
        counts = summary if isinstance(summary, Mapping) else {}
        cells = [str(counts[key]) if key in counts else "not run" for key in ("passed", "failed", "skipped")]
        table.add_row(Text(one_line(name)), *(Text(cell) for cell in cells))
    return to_text(table, where)


def _style(exit_code: int) -> str:
    return "green" if exit_code == 0 else "yellow" if exit_code == 3 else "bold red"


def _host_grid(hosts: Sequence[tuple[str, HostOutcome]], where: Look) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=False, show_edge=False)
    table.add_column("host", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    table.add_column("changes", justify="right", no_wrap=True)
    table.add_column("seconds", justify="right", no_wrap=True)
    table.add_column("note", ratio=1)
    for name, end in hosts:
        table.add_row(
            Text(one_line(name)),
            Text(words.outcome(end.exit_code), style=_style(end.exit_code)),
            Text(_changes(end)),
            Text(_seconds(end)),
            Text(_note(end, verbose=where.width >= 100)),
        )
    return table


def _host_list(hosts: Sequence[tuple[str, HostOutcome]]) -> RenderableType:
    parts: list[RenderableType] = []
    for name, end in hosts:
        parts.append(
            Text.assemble(
                (one_line(name), "bold"), "  ", (words.outcome(end.exit_code), _style(end.exit_code)),
                f"  {_changes(end)} changes, {_seconds(end)} s",
            )
        )  # fmt: skip
        if note := _note(end, verbose=False):
            parts.append(Padding(Text(note), (0, 0, 0, 4)))
    return Group(*parts)


def _step(same: Sequence[Step], verbose: bool, where: Look) -> Iterable[RenderableType]:
    """One step, or several that say the same."""
    step = same[0]
    style = STYLES[step.action]
    head = one_line(step.id) if len(same) == 1 else f"{len(same)} that are alike"
    yield Text.assemble(
        "  ", (f"{words.SYMBOLS[step.action]} {step.action.value:<6}", style), "  ", (head, "bold"),
        (" (disruptive: never on a joined host)" if step.disruptive and step.action is Action.CHANGE else "", "dim"),
    )  # fmt: skip
    if len(same) > 1:
        yield Padding(Text(one_line(", ".join(s.id for s in same))), (0, 0, 0, 12))
    yield Padding(Text(one_line(step.reason)), (0, 0, 0, 12))
    lines = file_diff(step) if step.action is not Action.KEEP else ()
    # A diff says more than the two hashes that "expected" and "found" hold for a file.
    if not lines:
        yield from _pair(step.expected if len(same) == 1 else "", step.found, where)
    if step.next:
        yield _next(step.next)
    most = len(lines) if verbose else DIFF_LINES
    for line in lines[:most]:
        yield Padding(Text(line.text, style=_DIFF_STYLES[line.kind], overflow="fold"), (0, 0, 0, 12))
    if len(lines) > most:
        yield Padding(Text(f"and {len(lines) - most} more lines; --verbose shows them", style="dim"), (0, 0, 0, 12))


def _line(step: Step, word: str) -> RenderableType:
    """A step in one line; the whole of it is in the report."""
    head = (f"{words.SYMBOLS[step.action]} {word:<8}", STYLES[step.action])
    line = Text.assemble("  ", head, "  ", (one_line(step.id), "bold"), "  ", one_line(step.reason))
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def _pair(expected: str, found: str, where: Look) -> Iterable[RenderableType]:
    if expected and found and len(expected) + len(found) + 34 <= where.width:
        yield Padding(
            Text.assemble(("found    ", "dim"), one_line(found), ("  expected ", "dim"), one_line(expected)), (0, 0, 0, 12)
        )
        return
    for label, value in (("expected", expected), ("found", found)):
        if value:
            yield Padding(Text.assemble((f"{label:<9}", "dim"), one_line(value)), (0, 0, 0, 12))


def _next(text: str) -> RenderableType:
    return Padding(Text.assemble(("next     ", "bold"), one_line(text)), (0, 0, 0, 12))


def _changes(end: HostOutcome) -> str:
    applied = end.result.get("apply")
    if isinstance(applied, Mapping) and "changed" in applied:
        return str(applied.get("steps", applied["changed"]))
    steps = end.result.get("steps")
    if isinstance(steps, Sequence):
        pending = sum(isinstance(s, Mapping) and s.get("action") in ("change", "reboot") for s in steps)
        return f"{pending} pending" if pending else "0"
    return "-"


def _seconds(end: HostOutcome) -> str:
    applied = end.result.get("apply")
    value = end.result.get("seconds", applied.get("seconds") if isinstance(applied, Mapping) else None)
    return f"{value:.1f}" if isinstance(value, int | float) else "-"


def _note(end: HostOutcome, verbose: bool) -> str:
    if end.failures:
        more = f" (and {len(end.failures) - 1} more)" if len(end.failures) > 1 else ""
        first = end.failures[0]
        return one_line(first.text() if verbose else f"{first.code}: {first.found or first.where}") + more
    return one_line(end.result.get("outcome") or end.result.get("planned", ""))
