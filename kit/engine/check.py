"""Profiles against the installed engine. Edge: a child process in the engine's own Python, with a time limit."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from kit.engine.argv import Placement, command
from kit.engine.model import EngineProfile
from kit.errors import ExitCode, Failure, KitError, failure

SCRIPT = Path(__file__).parent / "inside" / "parse.py"
TIMEOUT_S = 300.0
"""Importing SGLang takes 6 s of CPU, and more than a minute on a busy machine with a cold disk."""


class Refusal(BaseModel):
    """What the installed parser says about one flag."""

    model_config = ConfigDict(frozen=True)

    flag: str
    given: str
    said: str


class Answer(BaseModel):
    """The parser's document; see ``inside/parse.py``."""

    model_config = ConfigDict(frozen=True)

    version: str
    problems: tuple[Refusal, ...]
    parsed: dict[str, object]
    graphs: tuple[int, ...] | None
    parsers: dict[str, tuple[str, ...]]


def ask(profile: EngineProfile, python: Path, timeout_s: float = TIMEOUT_S) -> Answer:
    """The installed parser's answer. Raises KitError(USAGE) when that Python has no SGLang, KitError(TIMEOUT)."""
    graphs = profile.graphs
    asked = {
        "arguments": command(profile, Placement(host="127.0.0.1", port=1)).arguments,
        "max_batch": graphs.max_batch if graphs is not None else None,
    }
    where = f"{python} -I {SCRIPT.name}"
    # Nothing of this process's settings: a variable of the operator's shell must not change what the parser says.
    environment = {
        "PATH": "/usr/bin:/bin",
        "HF_HUB_OFFLINE": "1",
        **({"SGLANG_USE_CPU_ENGINE": "1"} if profile.device == "cpu" else {}),
    }
    try:
        done = subprocess.run(
            [str(python), "-I", str(SCRIPT)],
            input=json.dumps(asked).encode(),
            capture_output=True,
            timeout=timeout_s,
            env=environment,
            check=False,
        )
    except OSError as error:
        step = "give the engine's Python with --python"
        raise KitError(
            failure("engine.python", where, "a Python that has SGLang", error.strerror, step), ExitCode.USAGE
        ) from None
    except subprocess.TimeoutExpired:
        step = "see whether it imports by hand"
        raise KitError(
            failure("engine.python", where, f"an answer within {timeout_s:g} s", "none", step), ExitCode.TIMEOUT
        ) from None
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        found = said[-1] if said else f"status {done.returncode}"
        step = "give the engine's Python with --python"
        raise KitError(failure("engine.python", where, "SGLang's argument parser", found, step), ExitCode.USAGE)
    return Answer.model_validate_json(done.stdout)


def judge(profile: EngineProfile, answer: Answer) -> list[Failure]:
    """What the installed engine would not take, or would do otherwise than the profile says."""
    where = f"engine profile {profile.name}"
    version = f"SGLang {answer.version}"
    out = [
        failure(
            "engine.flag",
            f"{where} {one.flag}",
            f"a flag and value that {version} takes",
            f"{one.given}: {one.said}",
            "correct it",
        )
        for one in answer.problems
    ]
    graphs = profile.graphs
    if graphs is not None and not graphs.batch_sizes and answer.graphs is not None and len(answer.graphs) != graphs.expected:
        found = f"{version} captures {len(answer.graphs)}: {', '.join(map(str, answer.graphs))}"
        out.append(
            failure(
                "engine.graphs", f"{where} graphs.expected", graphs.expected, found, "correct the number, or give batch_sizes"
            )
        )
    for kind, resolved in (("reasoning", profile.parsers.resolved_reasoning), ("tools", profile.parsers.resolved_tools)):
        if resolved and resolved not in answer.parsers.get(kind, ()):
            found = f"{version} has no such parser"
            out.append(failure("engine.parser", f"{where} parsers.resolved_{kind}", resolved, found, "correct the name"))
    return out
