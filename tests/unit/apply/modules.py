"""Runs a module of ours as Ansible does on a host: a process of its own, arguments as JSON, one JSON document back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kit.paths import ROOT

MANAGED_FILES = ROOT / "roles/managed_files/library/managed_files.py"
START_UNITS = ROOT / "roles/units/library/start_units.py"


def start(module: Path, arguments: Mapping[str, Any], path: str = "", prelude: str = "") -> subprocess.Popen[str]:
    """The module's process. ``path``: a folder whose programs come first. ``prelude``: Python that runs in it before it."""
    text = f"{prelude}\nimport runpy\nrunpy.run_path({str(module)!r}, run_name='__main__')\n"
    process = subprocess.Popen(
        [sys.executable, "-c", text],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=dict(os.environ, PATH=f"{path}:{os.environ['PATH']}"),
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(json.dumps({"ANSIBLE_MODULE_ARGS": dict(arguments)}))
    process.stdin.close()
    process.stdin = None
    return process


def run(module: Path, arguments: Mapping[str, Any], path: str = "", prelude: str = "") -> dict[str, Any]:
    """What the module answers."""
    process = start(module, arguments, path, prelude)
    out, said = process.communicate(timeout=60)
    assert out.strip(), said
    found: dict[str, Any] = json.loads(out)
    return found
