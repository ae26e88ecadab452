"""Post-conditions: a copy of the patched tree is imported in a process of its own and asked through SGLang's own contract."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import libcst as cst

from kit.patch.bindings import Kind
from kit.patch.entry import entries
from kit.patch.model import Series, SpecField
from kit.patch.package import Package
from kit.patch.python_edits import PythonEdits
from kit.patch.report import Held, PostResult
from kit.patch.tree import Tree

RUNNER = Path(__file__).with_name("post_runner.py")
TIMEOUT_S = 30.0


@dataclass(frozen=True)
class Interpreter:
    """Where the patched plugin is imported. The image's own Python for a build; this one for a check."""

    python: str = sys.executable
    contract: Path | None = None
    """A folder with SGLang's contract files; None when SGLang itself is installed for ``python``."""
    timeout_s: float = TIMEOUT_S
    stand_ins: bool = True
    """Whether modules that are absent here (torch on a control machine) may be stood in for. Never in an image build."""


Pair = tuple[str, SpecField]


def check_conditions(series: Series, tree: Tree, interpreter: Interpreter) -> tuple[PostResult, ...]:
    """Every post-condition of the series against the tree with its edits. Writes only in a temporary folder."""
    pairs = [(patch.name, condition) for patch in series.patches for condition in patch.post_conditions]
    if not pairs:
        return ()
    with tempfile.TemporaryDirectory(prefix="b300kit-patch-") as scratch:
        inside = Package(tree).inside
        copy = Path(scratch) / "tree"
        write_tree(tree, copy / inside)
        how = _how_to_load(series, tree, copy, pairs)
        if isinstance(how, str):
            return _all(pairs, Held.BROKEN, how)
        request = {**how, "contract": series.declared.contract.module, "checks": [c.model_dump() for _, c in pairs]}
        if interpreter.contract is not None:
            request["paths"] = [*request["paths"], str(interpreter.contract)]
        found = _run(interpreter, {**request, "stand_in": False}, Path(scratch))
        if "absent" in found and found["absent"] and interpreter.stand_ins:
            found = _run(interpreter, {**request, "stand_in": True}, Path(scratch))
    return _judge(pairs, found, interpreter.stand_ins)


def skipped(series: Series, reason: str) -> tuple[PostResult, ...]:
    """Every post-condition as not looked at."""
    pairs = [(patch.name, condition) for patch in series.patches for condition in patch.post_conditions]
    return _all(pairs, Held.SKIPPED, reason)


def _all(pairs: Sequence[Pair], held: Held, reason: str) -> tuple[PostResult, ...]:
    return tuple(PostResult(patch=name, condition=str(c), held=held, reason=reason) for name, c in pairs)


def _judge(pairs: Sequence[Pair], found: dict[str, Any], lenient: bool) -> tuple[PostResult, ...]:
    stood_in = ", ".join(found.get("stood_in", []))
    note = f" (absent here and stood in for: {stood_in})" if stood_in else ""
    if "error" in found:
        # An import that needs what is absent here says nothing about the plugin; the image build looks again.
        unknown = lenient and bool(found.get("absent") or stood_in)
        return _all(pairs, Held.SKIPPED if unknown else Held.BROKEN, found["error"] + note)
    out = []
    for (name, condition), (good, value) in zip(pairs, found["checks"], strict=True):
        held = Held.HELD if good else Held.SKIPPED if stood_in else Held.BROKEN
        out.append(PostResult(patch=name, condition=str(condition), held=held, reason=value + note))
    return tuple(out)


def write_tree(tree: Tree, target: Path) -> None:
    """A full copy with the edits, links kept as they are (links out of the tree are left out)."""
    for path in tree.files:
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if path in tree.overlay:
            place.write_bytes(tree.overlay[path])
            place.chmod(tree.files[path].st_mode & 0o777)
        else:
            shutil.copy2(tree.root / path, place)
    for path, aim in tree.links.items():
        inside = os.path.normpath((Path(path).parent / aim).as_posix())
        if not inside.startswith(("..", "/")):
            (target / path).parent.mkdir(parents=True, exist_ok=True)
            (target / path).symlink_to(aim)


def _how_to_load(series: Series, tree: Tree, copy: Path, pairs: Sequence[Pair]) -> dict[str, Any] | str:
    """The request's ``paths``, ``entry`` and ``register``; or why it cannot be loaded at all."""
    declared = sorted({entry.target for entry in entries(tree)})
    if len(declared) > 1:
        return f"the tree declares {len(declared)} nvidia_megakernel entry points: {', '.join(declared)}"
    package = Package(tree)
    if declared:
        module = package.by_name(declared[0].partition(":")[0])
        path = getattr(module, "path", None)
        if path is None:
            return f"the entry point {declared[0]} names no module of the tree"
        return {"paths": [_root(copy, path, declared[0].partition(":")[0])], "entry": declared[0], "register": []}
    specs = _specs(package)
    if len(specs) != 1:
        return f"no nvidia_megakernel entry point, and {len(specs)} module-level MegakernelSpec objects"
    path, name = specs[0]
    root = _package_root(tree, path)
    if package.inside:
        root, path = "", f"{package.inside}/{path}"
    dotted = path[len(root) :].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    architectures = dict.fromkeys(condition.architecture for _, condition in pairs)
    register = [[architecture, f"{dotted}:{name}"] for architecture in architectures]
    return {"paths": [str(copy / root)], "entry": "", "register": register}


def _root(copy: Path, path: str, module: str) -> str:
    stem = module.replace(".", "/")
    for end in (f"{stem}.py", f"{stem}/__init__.py"):
        if path.endswith(end):
            return str(copy / path[: len(path) - len(end)])
    return str(copy)


def _package_root(tree: Tree, path: str) -> str:
    """The folder above the outermost package that a file is in, with a slash; empty for the tree itself."""
    folder = path.rpartition("/")[0]
    while folder and f"{folder}/__init__.py" in tree.files:
        folder = folder.rpartition("/")[0]
    return f"{folder}/" if folder else ""


def _specs(package: Package) -> list[tuple[str, str]]:
    """Module-level names bound to a ``MegakernelSpec(...)`` call."""
    out = []
    for call in PythonEdits(package).calls("MegakernelSpec"):
        for name, bindings in call.module.scope.bindings.items():
            if any(b.kind is Kind.VALUE and b.value is call.node for b in bindings) and isinstance(call.node, cst.Call):
                out.append((call.module.path, name))
    return out


def _run(interpreter: Interpreter, request: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Run the runner in a process group of its own; all of it is ended when the time is up."""
    environment = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "HOME": str(scratch), "LANG": "C.UTF-8"}
    command = [interpreter.python, "-I", "-B", str(RUNNER)]
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=scratch,
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(json.dumps(request).encode(), timeout=interpreter.timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"error": f"importing the plugin took longer than {interpreter.timeout_s:g} s", "absent": None}
    try:
        found = json.loads(out)
    except ValueError:
        last = err.decode(errors="replace").strip().splitlines()[-1:] or ["nothing"]
        return {"error": f"the import ended with status {process.returncode}: {last[0]}", "absent": None}
    return found if isinstance(found, dict) else {"error": "no answer", "absent": None}
