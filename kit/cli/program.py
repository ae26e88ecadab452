"""The console script ``invoke``: stock invoke's options and tasks, with this product's exit codes and JSON envelope.

What stock invoke gets wrong for us: usage errors exit 1, tracebacks reach the terminal, and nothing is JSON.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import signal
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import invoke.program
from invoke.exceptions import Exit, ParseError
from invoke.parser.context import ParserContext

from kit import paths
from kit.cli import misuse, signals
from kit.cli.stdout import Stdout

if TYPE_CHECKING:
    from kit.errors import Failure, KitError
    from kit.outcome import Outcome


def wants_json(argv: Sequence[str]) -> bool:
    """Whether ``--format json`` was given. Looked up before parsing, as a usage error must be JSON too."""
    words = list(argv[: argv.index("--")] if "--" in argv else argv)
    formats = [word.partition("=")[2] for word in words if word.startswith("--format=")]
    formats += [after for word, after in itertools.pairwise(words) if word == "--format"]
    return "json" in formats


class Program(invoke.program.Program):
    """invoke's program; what a task returned is kept in ``outcome`` for :func:`main` to print."""

    def __init__(self) -> None:
        super().__init__(name="b300kit", binary="inv[oke]", binary_names=["invoke", "inv"])
        self.outcome: Outcome | None = None
        self.task_name = ""

    def create_config(self) -> None:
        """invoke's own settings. Raises KitError(USAGE) when a file of them (``~/.invoke.yaml``) cannot be read."""
        try:
            super().create_config()
        except Exception as error:  # anything that YAML, JSON or a Python file can raise
            from kit.cli.command import usage

            place = "invoke's settings (~/.invoke.*, /etc/invoke.*)"
            found = " ".join(f"{type(error).__name__}: {error}".split())
            raise usage("cli.config", place, "none, or a readable file", found, "correct it, or set HOME") from error

    def parse_core(self, argv: list[str] | None) -> None:
        """invoke casts the values of its own options without catching what the cast raises."""
        try:
            super().parse_core(argv)
        except ValueError as error:
            raise ParseError(misuse.wrong_type(self.argv, error)) from error

    def parse(self, argv: list[str]) -> None:
        """Everything before a task runs. Raises ParseError or Exit as stock invoke does."""
        self.create_config()
        self.parse_core(argv)
        self.parse_collection()
        self.parse_tasks()
        self.task_name = (self.tasks[0].name or "") if self.tasks else ""
        self.parse_cleanup()
        self.update_config()
        if len(self.tasks) > 1:
            # One command, one JSON document and one exit status.
            raise ParseError(f"only one task a call: {', '.join(str(task.name) for task in self.tasks)}")

    def print_help(self) -> None:
        """The options that mean something here, and the commands: also when ``--help`` is asked before they are loaded."""
        arguments = [one for one in (*self.core_args(), *self.task_args()) if one.name not in misuse.IGNORED]
        sys.stdout.write(f"Usage: {self.binary} [--core-opts] COMMAND [--options]\n\nCore options:\n\n")
        self.print_columns(ParserContext(args=arguments).help_tuples())
        if "collection" not in vars(self):
            self.load_collection()
            self.scoped_collection, self.list_root, self.list_depth, self.list_format = self.collection, None, None, "flat"
        self.list_tasks()

    def print_version(self) -> None:
        """Ours and invoke's."""
        from importlib.metadata import version

        sys.stdout.write(f"{self.name} {version('b300kit')} (invoke {version('invoke')})\n")

    def parse_tasks(self) -> None:
        """invoke casts option values without catching what the cast raises."""
        try:
            super().parse_tasks()
        except ValueError as error:
            raise ParseError(misuse.wrong_type(self.argv, error)) from error
        self._refuse_ignored()
        for context in self.tasks:
            for argument in context.args.values():
                # invoke takes the next word for a value, even where it is plainly the next option (--host --format=json).
                if isinstance(argument.value, str) and argument.value.startswith("--"):
                    raise ParseError(f"--{argument.names[0]} without its value, before {argument.value}", context)

    def _refuse_ignored(self) -> None:
        """Raises KitError(USAGE) for every option of invoke's that would be taken and change nothing."""
        from kit.errors import ExitCode, KitError

        self.task_name = (self.tasks[0].name or "") if self.tasks else ""
        told = misuse.ignored(self.task_name, {name: self.args[name].value for name in misuse.IGNORED})
        if told:
            raise KitError(told, ExitCode.USAGE)

    def load_collection(self) -> None:
        """Our ``tasks.py`` from any folder, so that cron need not change to ours."""
        if self.args["search-root"].value is None and self.args.collection.value is None:
            self.args["search-root"].value = str(paths.ROOT)
        super().load_collection()

    def execute(self) -> None:
        """Run the one task and keep what it returns."""
        self.config["kit_task"] = self.task_name
        call = self.executor_class(self.collection, self.config, self.core)
        for result in call.execute(*self.tasks).values():
            self.outcome = cast("Outcome", result)  # invoke's types know only its own Result


def main() -> int:
    """Entry point of the console script. Returns the exit status."""
    argv = list(sys.argv)
    stdout = Stdout(json=wants_json(argv[1:]))
    program = Program()

    def last_words(stop: signals.Interrupted) -> None:
        _print(stdout, _interrupted(program, argv, stop))

    guard = signals.Guard(last_words)
    guard.install()
    try:
        try:
            outcome = _run(program, argv, stdout)
        except KeyboardInterrupt as stop:
            guard.settle()
            outcome = _interrupted(program, argv, stop)
        if outcome is None:
            sys.stdout.flush()
            return 0
        return _print(stdout, outcome)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing to say, nobody to say it to.
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 128 + signal.SIGPIPE
    except signals.Interrupted as late:
        return late.exit_code
    except OSError as error:
        sys.stderr.write(f"error: standard output: {error.strerror or error}\n")
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1


def _run(program: Program, argv: list[str], stdout: Stdout) -> Outcome | None:
    """The outcome to print; None when invoke printed by itself (``--list``, ``--help``, completion)."""
    shown = io.StringIO()
    try:
        with contextlib.redirect_stdout(shown) if stdout.json else contextlib.nullcontext():
            program.parse(argv)
    except ParseError as error:
        return _usage(program, argv, error)
    except Exit as end:
        if end.message:
            return _usage(program, argv, ParseError(end.message))
        if stdout.json:
            return _outcome(program, argv, result={"help": shown.getvalue()})
        return None
    except OSError as error:
        if error.filename is None:
            raise  # standard output: what invoke printed found no room, or no reader
        return _fault(program, argv, error)
    except Exception as error:  # noqa: BLE001  (what invoke's settings or a tasks.py of somebody else's raise)
        from kit.errors import KitError

        return _raised(program, argv, error) if isinstance(error, KitError) else _fault(program, argv, error)
    from kit.cli import progress
    from kit.errors import KitError

    progress.configure()
    try:
        with stdout.reserved():
            program.execute()
    except KitError as error:
        return _raised(program, argv, error)
    except (Exception, SystemExit) as error:  # noqa: BLE001  (the last resort: a message, not a traceback)
        return _fault(program, argv, error)
    return program.outcome


def _print(stdout: Stdout, outcome: Outcome) -> int:
    from kit.cli import output
    from kit.report.clean import one_line

    code = output.exit_code(outcome)
    if not stdout.claim():
        return code
    if stdout.json:
        try:
            document = output.to_json(output.envelope(outcome))
        except (ValueError, TypeError) as error:
            fault = _fault_of(outcome.task, error)
            document, code = output.to_json(output.envelope(fault)), output.exit_code(fault)
        stdout.write(document)
    elif outcome.text:
        stdout.write(outcome.text.rstrip("\n") + "\n")
    if not stdout.json:
        with contextlib.suppress(OSError):
            sys.stderr.write("".join(f"skipped: {one_line(line)}\n" for line in outcome.skipped))
            sys.stderr.write("".join(f"error: {line}\n" for line in output.failure_lines(outcome)))
    return code


def _name(program: Program, argv: Sequence[str]) -> str:
    """The task, also when parsing failed before it was known."""
    return program.task_name or next((word for word in argv[1:] if not word.startswith("-")), "")


def _outcome(program: Program, argv: Sequence[str], **parts: Any) -> Outcome:
    from kit.outcome import Outcome

    return Outcome(_name(program, argv), **parts)


def _failed(program: Program, argv: Sequence[str], failure: Failure, code: int) -> Outcome:
    return _outcome(program, argv, failures=(failure,), exit_code=code)


def _usage(program: Program, argv: Sequence[str], error: ParseError) -> Outcome:
    from kit.errors import ExitCode

    known = list(program.collection.task_names) if "collection" in vars(program) else []
    return _failed(program, argv, misuse.explain(error, program.task_name, known), ExitCode.USAGE)


def _raised(program: Program, argv: Sequence[str], error: KitError) -> Outcome:
    return _outcome(program, argv, failures=tuple(error.failures), exit_code=int(error.exit_code))


def _interrupted(program: Program, argv: Sequence[str], stop: KeyboardInterrupt) -> Outcome:
    from kit.errors import failure

    by = stop if isinstance(stop, signals.Interrupted) else signals.Interrupted(2)
    name = _name(program, argv)
    step = "run it again: it goes on from what is there" if name else ""
    return _failed(program, argv, failure("cli.interrupted", f"invoke {name}", "a finished run", str(by), step), by.exit_code)


def _fault(program: Program, argv: Sequence[str], error: BaseException) -> Outcome:
    return _fault_of(_name(program, argv), error)


def _fault_of(task: str, error: BaseException) -> Outcome:
    from kit.cli.crash import report

    return report(task, error)
