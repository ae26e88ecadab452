"""``invoke engine.*``: profiles checked and shown. Edge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kit import paths
from kit.engine import check as installed
from kit.engine.argv import Placement, command
from kit.engine.load import folders, load_all, load_profile, names
from kit.engine.model import EngineProfile
from kit.errors import ExitCode, Failure, KitError
from kit.outcome import Outcome

VENV = "serve-venv"


def engine_python(given: str = "") -> Path | None:
    """The Python that has SGLang: as given, else the one that this kit's cache holds; None without either."""
    if given:
        return Path(given)
    own = paths.cache_dir() / VENV / "bin" / "python"
    return own if own.exists() else None


def check(profile: str = "", python: str = "") -> Outcome:
    """Lint profiles, and hold them against the installed engine's own parser where there is one. Exit 2 for any finding."""
    wanted = [profile] if profile else names(folders())
    good, failures = _load(wanted)
    interpreter, skipped = engine_python(python), list[str]()
    result: dict[str, Any] = {}
    for name, one in good.items():
        result[name] = {"purpose": one.purpose, "argv_sha256": command(one, _nowhere()).sha256()}
        if interpreter is None:
            skipped.append(f"{name}: its flags were held against no engine: no SGLang here; give its Python with --python")
            continue
        try:
            answer = installed.ask(one, interpreter)
        except KitError as error:
            failures += error.failures
            continue
        found = installed.judge(one, answer)
        failures += found
        result[name] |= {"sglang": answer.version, "graphs": answer.graphs, "accepted": not found}
    lines = [f"{name}: {_words(one)}" for name, one in result.items()] + [f"skipped: {line}" for line in skipped]
    return Outcome(
        "engine.check",
        result={"profiles": result},
        failures=tuple(failures),
        skipped=tuple(skipped),
        exit_code=ExitCode.USAGE if failures else ExitCode.OK,
        text="\n".join(lines),
    )


def _words(one: dict[str, Any]) -> str:
    if "sglang" not in one:
        return f"{one['purpose']}; lint clean"
    graphs = f", {len(one['graphs'])} decode graphs" if one["graphs"] else ""
    verb = "takes" if one["accepted"] else "refuses"
    return f"{one['purpose']}; lint clean; SGLang {one['sglang']} {verb} its flags{graphs}"


def _load(wanted: list[str]) -> tuple[dict[str, EngineProfile], list[Failure]]:
    if len(wanted) != 1:
        return load_all(folders())
    try:
        return {wanted[0]: load_profile(wanted[0], folders())}, []
    except KitError as error:
        return {}, list(error.failures)


def _nowhere() -> Placement:
    return Placement(host="127.0.0.1", port=30000)


def show(profile: str, host: str = "127.0.0.1", port: int = 30000) -> Outcome:
    """The exact command that a profile means."""
    one = load_profile(profile, folders())
    made = command(one, Placement(host=host, port=port))
    words = made.argv("python")
    lines = [f"{name}={value} \\" for name, value in made.environment.items()]
    text = "\n".join([*lines, *_wrapped(words)])
    result = {"argv": words, "environment": dict(made.environment), "sha256": made.sha256()}
    return Outcome("engine.show", result=result, text=text)


def _wrapped(words: tuple[str, ...]) -> list[str]:
    lines = [" ".join(words[:2])]
    for word in words[2:]:
        if word.startswith("--"):
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {word}"
    return [f"{line} \\" for line in lines[:-1]] + lines[-1:]
