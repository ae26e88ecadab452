"""The layers, read from the imports: what decides does no I/O, and who may import whom.

A module of ``kit`` is pure unless it is listed below with the one kind of effect that it has.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kit import paths

EDGES = {
    "kit.paths": "reads the environment",
    "kit.procfs": "looks at processes",
    "kit.files": "writes files",
    "kit.flow": "runs the stages",
    "kit.work": "keeps the record of a run over hosts",
    "kit.demo": "runs commands",
    "kit.doctor": "looks at this machine",
    "kit.apply.ansible": "runs Ansible",
    "kit.apply.hostcheck": "runs pytest",
    "kit.apply.inventory": "makes the folder of shared connections",
    "kit.apply.ssh": "runs ssh",
    "kit.apply.ssh_client": "runs ssh",
    "kit.engine.check": "asks the installed engine's parser",
    "kit.engine.commands": "reads profiles, runs the engine's Python",
    "kit.engine.load": "reads fleet folders",
    "kit.gates.commands": "runs gates, keeps the record",
    "kit.gates.limits": "reads threshold files",
    "kit.gates.pinned": "reads prompts, runs the engine's Python",
    "kit.gates.reference_store": "reads, writes and signs references",
    "kit.gates.run": "runs the gates",
    "kit.facts.burn_in_run": "talks to a host",
    "kit.facts.collect": "talks to a host",
    "kit.facts.measure": "compiles, talks to a host",
    "kit.facts.measured_cache": "keeps files",
    "kit.facts.probe": "reads the probe's source",
    "kit.record.environment": "looks at this machine",
    "kit.record.files": "writes files",
    "kit.record.documents": "reads the record",
    "kit.record.read": "reads the record",
    "kit.record.store": "writes the record",
    "kit.report.html": "reads the record",
    "kit.report.metrics": "writes a file",
    "kit.report.terminal": "asks the terminal",
    "kit.report.text": "asks the terminal",
    "kit.router.client": "talks to routers",
    "kit.router.flow": "talks to nodes and routers",
    "kit.router.commands": "runs the stages of serving",
    "kit.router.host": "talks to a host",
    "kit.router.reconcile": "talks to nodes and routers",
    "kit.router.rollout_run": "carries a rollout out",
    "kit.router.node": "names what the edges of a node do",
    "kit.spec.commands": "reads and writes fleet folders",
    "kit.spec.hostkey": "runs ssh-keyscan",
    "kit.spec.init": "talks to a host",
    "kit.spec.load": "reads fleet folders",
    "kit.spec.pick": "reads fleet folders",
    "kit.spec.relock": "talks to a host, writes the lock",
}
EDGE_PACKAGES = {
    "kit.cli": "the terminal and the process",
    "kit.sim": "makes machines",
    "kit.patch": "reads source trees as it goes",
    "kit.slots": "reads source trees as it goes",
    "kit.image": "builds and delivers images",
    "kit.ansible_plugins": "called by Ansible",
    "kit.gates.gather": "talks to an engine and its host",
    "kit.router.inside": "runs in the router's Python, not here",
    "kit.engine.inside": "runs in the engine's Python, not here",
    "kit.facts.host": "runs on the host, not here",
    "kit.plan.onhost": "runs on the host, not here",
}
PURE_IN_EDGE_PACKAGES = {
    *("kit.cli.exit", "kit.cli.output", "kit.patch.model", "kit.patch.report", "kit.patch.text", "kit.patch.c_constants"),
    *("kit.slots.model", "kit.slots.compose", "kit.image.model", "kit.image.render"),
}
READS_ITS_OWN_TEXT = {"kit.plan.render"}
"""Scripts and templates that lie beside it: part of the program, the same at every call."""

EFFECTS = {
    *("os", "subprocess", "socket", "time", "shutil", "tempfile", "signal", "threading", "fcntl", "selectors", "platform"),
    *("random", "secrets", "uuid", "getpass", "glob", "ansible_runner", "asyncio", "multiprocessing", "urllib", "http", "httpx"),
    *("requests", "docker", "pynvml", "ctypes", "logging", "concurrent"),
}
PATH_EFFECTS = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "open", "exists", "is_file", "is_dir", "iterdir", "glob", "rglob"),
    *("mkdir", "unlink", "rename", "touch", "stat", "lstat", "absolute", "cwd", "home", "chmod"),
    *("symlink_to", "rmdir", "samefile", "expanduser"),
}
CLOCKS = {("datetime", "now"), ("datetime", "utcnow"), ("datetime", "today"), ("date", "today")}
SYS_CONSTANTS = {"stdlib_module_names", "version_info", "maxsize"}


@cache
def modules() -> dict[str, ast.Module]:
    """Every module of kit, and tasks."""
    found = {"tasks": ast.parse((paths.ROOT / "tasks.py").read_text())}
    for path in sorted((paths.ROOT / "kit").rglob("*.py")):
        parts = path.relative_to(paths.ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    return found


def command_line(module: str) -> bool:
    return module == "tasks" or module.split(".")[:2] == ["kit", "tasks"]


def edge(module: str) -> bool:
    if module in PURE_IN_EDGE_PACKAGES:
        return False
    return module in EDGES or any(module == package or module.startswith(f"{package}.") for package in EDGE_PACKAGES)


def imports(tree: ast.AST, known: frozenset[str]) -> Iterator[str]:
    """Full names of what is imported anywhere in it; ``from kit import paths`` is ``kit.paths``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module


def impurities(tree: ast.Module, known: frozenset[str] = frozenset()) -> list[str]:
    """What a pure module may not do, as far as its text shows."""
    out = []
    for name in imports(tree, known):
        if name.split(".")[0] in EFFECTS:
            out.append(f"imports {name}")
        if name.startswith("kit.") and edge(name):
            out.append(f"imports the edge {name}")
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("open", "print", "input", "exec", "eval")
        ):
            out.append(f"line {node.lineno}: calls {node.func.id}")
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id == "sys" and node.attr not in SYS_CONSTANTS:
                out.append(f"line {node.lineno}: uses sys.{node.attr}")
            if (node.value.id, node.attr) in CLOCKS:
                out.append(f"line {node.lineno}: reads the clock")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATH_EFFECTS:
            out.append(f"line {node.lineno}: calls .{node.func.attr}")
    return out


@pytest.mark.parametrize("module", sorted(name for name in modules() if not command_line(name) and not edge(name)))
def test_what_decides_is_pure(module: str) -> None:
    found = impurities(modules()[module], frozenset(modules()))
    if module in READS_ITS_OWN_TEXT:
        assert len(found) == 1
        assert found[0].endswith("calls .read_text")
    else:
        assert found == []


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "from subprocess import run",
        "def f():\n    import time",
        "from kit.spec.load import load_fleet",
        "from kit.sim import flow",
        "import sys\nsys.argv",
        "from pathlib import Path\nPath('x').read_text()",
        "open('x')",
        "from datetime import datetime\ndatetime.now()",
    ],
)
def test_each_impurity_is_seen(text: str) -> None:
    assert impurities(ast.parse(text), frozenset(modules()))


def test_an_import_of_a_module_by_its_package_is_seen() -> None:
    assert impurities(ast.parse("from kit import paths"), frozenset(modules())) == ["imports the edge kit.paths"]


def test_every_edge_listed_is_there_and_needs_to_be() -> None:
    known = frozenset(modules())
    assert set(EDGES) <= known
    assert all(any(name == package or name.startswith(f"{package}.") for name in known) for package in EDGE_PACKAGES)
    for module in EDGES:
        assert impurities(modules()[module], known), f"{module} is pure: take it off the list of edges"


def importers(package: str) -> set[str]:
    known = frozenset(modules())
    return {
        module
        for module, tree in modules().items()
        if any(name == package or name.startswith(f"{package}.") for name in imports(tree, known))
        and not module.startswith(package)
    }


def test_the_simulator_is_imported_by_the_command_line_alone() -> None:
    assert {name for name in importers("kit.sim") if not command_line(name)} <= {"kit.demo", "kit.cli.simulated"}


def test_only_the_command_line_knows_the_command_line() -> None:
    """kit.cli.exit is the contract of exit codes, and pure: the flow records with it what the process will end with."""
    assert {name for name in importers("kit.cli") if not name.startswith("kit.cli") and not command_line(name)} <= {"kit.work"}
    known = frozenset(modules())
    assert {name for name in imports(modules()["kit.work"], known) if name.startswith("kit.cli")} <= {"kit.cli.exit"}


def test_the_stages_are_put_in_order_in_one_place() -> None:
    assert importers("kit.flow") == {"kit.tasks.hosts"}


def test_the_probe_and_the_units_on_a_host_depend_on_nothing() -> None:
    import sys

    known = frozenset(modules())
    for module, tree in modules().items():
        if module.startswith(("kit.facts.host", "kit.plan.onhost", "kit.image.inside", "kit.image.onhost")):
            for name in imports(tree, known):
                own = name.startswith(("kit.facts.host", "kit.plan.onhost", "kit.image.inside", "kit.image.onhost"))
                assert own or name.split(".")[0] in sys.stdlib_module_names, f"{module} imports {name}"


def test_what_runs_in_the_engines_python_knows_nothing_of_this_kit() -> None:
    known = frozenset(modules())
    inside = [module for module in modules() if module.startswith(("kit.engine.inside.", "kit.router.inside."))]
    assert inside
    for module in inside:
        assert not [name for name in imports(modules()[module], known) if name.startswith("kit")], module


def test_tasks_import_nothing_heavy_at_the_top() -> None:
    top = {
        name.split(".")[0] + ("" if not name.startswith("kit") else name.removeprefix("kit"))
        for module, tree in modules().items()
        if command_line(module)
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in imports(node, frozenset(modules()))
    }
    assert {name for name in top if not command_line(name)} <= {"__future__", "pathlib", "typing", "invoke", "kit.cli.command"}


def test_only_tasks_and_the_program_end_the_process() -> None:
    for module, tree in modules().items():
        if module.startswith(
            (
                "kit.cli",
                "kit.facts.host",
                "kit.plan.onhost",
                "kit.sim",
                "kit.image.inside",
                "kit.engine.inside",
                "kit.router.inside",
            )
        ) or module.endswith("__main__"):
            continue
        for node in ast.walk(tree):
            ends = isinstance(node, ast.Call) and ast.unparse(node.func) in ("sys.exit", "exit", "quit", "os._exit")
            assert not ends, f"{module} ends the process"


def test_the_root_of_the_source_is_found() -> None:
    assert isinstance(paths.ROOT, Path)
    assert len(modules()) > 50
