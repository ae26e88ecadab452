"""Reads and makes pinned prompt files. Edge: files, the engine's Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from kit import paths
from kit.errors import ExitCode, KitError, failure
from kit.gates.prompts import Prompts
from kit.spec.load import shown

SCRIPT = paths.ROOT / "kit" / "engine" / "inside" / "pin_prompts.py"
FOLDER = "prompts"
TEXTS = ("*.md", "*.txt")


def load_prompts(name: str, directories: Sequence[Path]) -> Prompts:
    """Raises KitError(USAGE) when there is no such file, or it is broken."""
    for directory in directories:
        path = directory / FOLDER / f"{name}.json"
        if path.is_file():
            try:
                return Prompts.model_validate_json(path.read_text())
            except ValidationError as error:
                found = str(error.errors(include_url=False)[0]["msg"])
                raise KitError(
                    failure("prompts.broken", shown(path), "pinned prompts", found, "restore it"), ExitCode.USAGE
                ) from None
    where = f"{FOLDER}/{name}.json"
    step = f"invoke prompts.pin --name {name} --model FOLDER --text FOLDER, with the model's own tokenizer"
    raise KitError(failure("prompts.none", where, "pinned prompts", "no such file", step), ExitCode.USAGE)


def pin(
    name: str, model: Path, text: Path, short: tuple[int, int], long: tuple[int, int], python: Path, about: str, folder: Path
) -> tuple[Path, Prompts]:
    """Make a file that is not there yet. Raises KitError(USAGE)."""
    path = folder / FOLDER / f"{name}.json"
    if path.exists():
        step = "references hold for these prompts: choose another name"
        raise KitError(failure("prompts.exists", shown(path), "no such file", "one", step), ExitCode.USAGE)
    files = sorted(p for pattern in TEXTS for p in text.rglob(pattern)) if text.is_dir() else [text]
    words = "\n".join(p.read_text(errors="replace") for p in files)
    asked = {"model": str(model), "text": words, "short": short, "long": long}
    done = subprocess.run(
        [str(python), "-I", str(SCRIPT)], input=json.dumps(asked).encode(), capture_output=True, timeout=300, check=False
    )
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise KitError(
            failure("prompts.pin", shown(text), "pinned prompts", said[-1] if said else "nothing", "see above"), ExitCode.USAGE
        )
    made = Prompts.model_validate({"schema_version": 1, "about": about, **json.loads(done.stdout)})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(made.model_dump_json() + "\n")
    return path, made
