"""``@command``: a task of three lines with the options that every command shares. Imports nothing heavy.

The decorated function takes its targets (when it works on hosts) and options, and returns a :class:`kit.outcome.Outcome`;
the program (:mod:`kit.cli.program`) prints it and exits.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from invoke.context import Context
from invoke.tasks import Task

if TYPE_CHECKING:
    from kit.errors import KitError
    from kit.outcome import Outcome

FORMATS = ("text", "json")
_FORMAT_HELP = "text (default) or json: one document on standard output, on failure too."
_HOST_HELP = "A host, a comma list of hosts, a group, or all."


class KitTask(Task[Callable[..., "Outcome"]]):
    """A task whose ``--host`` is also called ``--hosts``."""

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        """invoke's description of one option."""
        options: dict[str, Any] = super().arg_opts(name, default, taken_names)
        if name == "host":
            options["names"] = ["host", "hosts"]
        return options


def command(
    *, hosts: bool = False, help: Mapping[str, str] | None = None, name: str | None = None
) -> Callable[[Callable[..., Outcome]], KitTask]:
    """Make an invoke task of a function that returns an Outcome.

    hosts: the function's first parameter, ``targets``, is filled from the required option ``--host``.
    A parameter without default is a required option. No option is positional or has a short form.
    """

    def decorate(function: Callable[..., Outcome]) -> KitTask:
        parameters = list(inspect.signature(function).parameters.values())[1 if hosts else 0 :]
        required = (["host"] if hosts else []) + [p.name for p in parameters if p.default is inspect.Parameter.empty]

        def body(context: Context, **options: Any) -> Outcome:
            called = context.config.get("kit_task") or function.__name__
            _check(called, options, required)
            del options["format"]
            if not hosts:
                return function(**options)
            from kit.spec.pick import on_hosts

            return on_hosts(options.pop("host"), lambda targets: function(targets, **options))

        keyword = inspect.Parameter.KEYWORD_ONLY
        shown = [inspect.Parameter("context", inspect.Parameter.POSITIONAL_ONLY)]
        shown += [inspect.Parameter("host", keyword, default=None)] if hosts else []
        shown += [p.replace(kind=keyword, default=None if p.name in required else p.default) for p in parameters]
        shown += [inspect.Parameter("format", keyword, default="text")]
        body.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        body.__name__, body.__doc__, body.__module__ = function.__name__, function.__doc__, function.__module__
        texts = {**(help or {}), "format": _FORMAT_HELP, **({"host": _HOST_HELP} if hosts else {})}
        return KitTask(body, name=name, positional=[], auto_shortflags=False, help=texts)

    return decorate


def _check(task: str, options: Mapping[str, Any], required: list[str]) -> None:
    from kit.errors import ExitCode, KitError, failure

    def problem(code: str, option: str, expected: str, found: str, next: str) -> Any:
        return failure(code, f"invoke {task} --{option.replace('_', '-')}", expected, found, next)

    failures = [
        problem("cli.missing_option", option, "a value", "nothing", f"see `invoke --help {task}`")
        for option in required
        if options[option] in (None, "")
    ]
    if options["format"] not in FORMATS:
        failures.append(problem("cli.bad_value", "format", "text or json", repr(options["format"]), "use one of the two"))
    if failures:
        raise KitError(failures, ExitCode.USAGE)


def usage(code: str, where: str, expected: str, found: str, next: str) -> KitError:
    """A usage error (exit status 2), for a task to raise."""
    from kit.errors import ExitCode, KitError, failure

    return KitError(failure(code, where, expected, found, next), ExitCode.USAGE)
