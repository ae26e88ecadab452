"""The real console program, on a small tasks.py of the test's own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli import Ran

TASKS = '''
import os, subprocess, sys, time
from pathlib import Path
from invoke.collection import Collection
from kit.cli.command import command


@command()
def good():
    """Ends well."""
    from kit.outcome import Outcome
    print("stray")
    os.write(1, b"stray bytes\\n")
    subprocess.run(["echo", "stray child"], check=True)
    return Outcome("good", result={"path": Path("/x")}, text="\\x1b[31mdata\\x1b[0m")


@command(help={"value": "A value."})
def needs(value: str, number: int = 1):
    """Has a required option."""
    from kit.outcome import Outcome
    return Outcome("needs", result={"value": value, "number": number})


@command(hosts=True)
def hosts(targets):
    """Three hosts, three ends."""
    from kit.errors import failure
    from kit.outcome import HostOutcome, Outcome
    codes = dict(zip([t.name for t in targets], (0, 3, 7)))
    problem = lambda n, c: (failure("x.y", f"{n}: z"),) if c else ()
    return Outcome("hosts", {n: HostOutcome(c, {"steps": []}, problem(n, c)) for n, c in codes.items()})


@command()
def refuses():
    """Raises what libraries raise."""
    from kit.errors import ExitCode, KitError, failure
    raise KitError([failure("a.b", "here", 1, 2, "do"), failure("c.d", "there")], ExitCode.REFUSED)


@command()
def broken():
    """A fault of ours."""
    raise RuntimeError("boom")


@command()
def leaves():
    """A library that exits."""
    sys.exit(0)


@command()
def nan():
    """A result that JSON cannot say."""
    from kit.outcome import Outcome
    return Outcome("nan", result={"value": float("nan")})


@command()
def waits():
    """Until it is stopped."""
    try:
        child = subprocess.Popen(["sleep", "300"], start_new_session=True)
        print(child.pid, file=sys.stderr, flush=True)
        time.sleep(300)
    finally:
        print("cleaned", file=sys.stderr, flush=True)


namespace = Collection(good, needs, hosts, refuses, broken, leaves, nan, waits)
'''


Invoke = Callable[..., Ran]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with the planted tasks."""
    (tmp_path / "tasks.py").write_text(TASKS)
    return tmp_path


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Nothing of the developer's own settings, and a cache of its own."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("B300KIT_", "INVOKE_", "NO_COLOR"))}
    return {**kept, "B300KIT_CACHE": str(tmp_path / "cache"), "B300KIT_RUNS": str(tmp_path / "runs")}


def program(*words: str) -> list[str]:
    """The console script's own entry, by the interpreter that runs the tests."""
    return [
        sys.executable,
        "-c",
        "import sys; from kit.cli.program import main; sys.argv[0] = 'invoke'; sys.exit(main())",
        *words,
    ]


@pytest.fixture
def invoke(root: Path, environment: dict[str, str]) -> Invoke:
    """Call it with the planted tasks; ``planted=False`` for the product's own."""

    def call(*words: str, planted: bool = True, **variables: str) -> Ran:
        chosen = ["--search-root", str(root)] if planted else []
        done = subprocess.run(
            program(*chosen, *words),
            capture_output=True,
            text=True,
            env={**environment, **variables},
            cwd=root,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return call
