"""A fault of ours: a short message for the operator, the traceback in a file."""

from __future__ import annotations

import os
import sys
import tempfile
import time
import traceback
from pathlib import Path

from kit import paths
from kit.cli.progress import DEBUG, debugging
from kit.errors import ExitCode, failure
from kit.outcome import Outcome


def report(task: str, error: BaseException) -> Outcome:
    """Keep the traceback (frames and messages only, never variables) and say where it lies."""
    text = "".join(traceback.format_exception(error))
    if debugging():
        sys.stderr.write(text)
    kept = _keep(text)
    found = f"{type(error).__name__}: {error}".rstrip(": ")
    step = f"report it with {kept}" if kept else f"run it again with {DEBUG}=1 and report what it prints"
    problem = failure("internal", f"invoke {task}".rstrip(), "", found[:500], step)
    return Outcome(task, failures=(problem,), exit_code=ExitCode.INTERNAL)


def _keep(text: str) -> Path | None:
    name = f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{os.getpid()}.txt"
    for folder in (paths.cache_dir() / "faults", Path(tempfile.gettempdir())):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / f"b300kit-{name}"
            # Exclusive: a file planted in a shared folder is never written through.
            with path.open("x", encoding="utf-8", errors="backslashreplace") as file:
                path.chmod(0o600)
                file.write(text)
        except OSError:
            continue
        return path
    return None
