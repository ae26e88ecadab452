"""A command line that was not meant so: what was wrong with it, and what was probably meant. Pure."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from invoke.exceptions import ParseError
from invoke.parser.context import ParserContext

if TYPE_CHECKING:
    from kit.errors import Failure

IGNORED = {
    "dry": "`--check`, where a command has it, or `invoke plan`, shows what would be done",
    "echo": "the record has what was run: `invoke record.show`",
    "hide": "take it away",
    "pty": "take it away",
    "warn-only": "take it away: every failure is told, and the exit status is the contract",
    "command-timeout": "take it away; `timeout SECONDS invoke ...` ends a run as a signal does",
    "prompt-for-sudo-password": "take it away: the kit needs sudo without a password on the hosts",
    "no-dedupe": "take it away: one command a call",
}
"""invoke's own options about shell commands that a task runs through invoke: none of ours does, so each would be taken and
ignored. ``--dry`` would be worst: it promises that nothing runs."""


def ignored(task: str, values: Mapping[str, Any]) -> list[Failure]:
    """A failure for each of :data:`IGNORED` that was given. ``values``: option -> what invoke read; None or False: not given."""
    from kit.errors import failure

    place = f"invoke {task}".rstrip()
    return [
        failure("cli.ignored_option", place, "options that have an effect here", f"--{name}", step)
        for name, step in IGNORED.items()
        if values[name] not in (None, False)
    ]


def wrong_type(argv: Sequence[str], error: ValueError) -> str:
    """invoke tells the value that it could not cast; the option before it is what an operator typed wrong."""
    pairs = [tuple(word.split("=", 1)) for word in argv if word.startswith("-") and "=" in word]
    pairs += itertools.pairwise(argv)
    named = next((option for option, value in pairs if option.startswith("-") and repr(value) in str(error)), "an option")
    return f"{named} has a value of the wrong type: {error}"


def explain(error: ParseError, running: str, tasks: Sequence[str]) -> Failure:
    """invoke's complaint as a failure. ``running``: the task, when it is known; ``tasks``: the names that there are."""
    from kit.errors import failure

    said = str(error).rstrip("!")
    if flag := re.match(r"Flag <Argument: ([^ >]+)", said):
        said = f"--{flag[1].replace('_', '-')} without its value"
    word = said.split("'")[1] if said.startswith("No idea what") else ""
    context = error.context
    task = (context.name if context is not None else None) or running
    near = list(context.flags) if word.startswith("-") and context is not None else tasks if word else []
    close = difflib.get_close_matches(word, near, n=1)
    step = f"did you mean {close[0]}?" if close else f"see `invoke --help {task}`" if task else "see `invoke --list`"
    place = f"invoke {task}".rstrip()
    expected = "a known option" if word.startswith("-") else "a known task" if word else "a valid command line"
    if word and not word.startswith("-"):
        if task and context is not None:
            expected, step = "options only", _as_option(context, word) or f"see `invoke --help {task}`"
        elif group := [name for name in tasks if name.startswith(f"{word}.")]:
            expected, step = f"one of {', '.join(sorted(group))}", f"see `invoke --list {word}`"
    return failure("cli.usage", place, expected, repr(word) if word else said, step)


def _as_option(context: ParserContext, word: str) -> str:
    """What a word without an option was probably meant to be: the host, or the one value that the command takes."""
    open_ = {name for name, argument in context.args.items() if argument.takes_value and not argument.got_value}
    chosen = ["host"] if "host" in open_ else sorted(open_ - {"format"})
    if len(chosen) != 1 or ("host" in context.args and chosen != ["host"]):
        return ""
    return f"say `--{chosen[0].replace('_', '-')} {word}`"
