"""The product's own tasks: their names are a contract, and listing them is quick."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from invoke.program import Program as Stock

import tasks
from kit import paths
from kit.cli.command import KitTask
from kit.cli.program import Program
from kit.spec import commands
from tests.unit.spec.conftest import example_fleet

from .conftest import Invoke

CONTRACT = {
    *("doctor", "fleet.init", "fleet.check", "probe", "plan", "provision", "drift", "verify"),
    *("record.list", "record.show", "record.report", "record.verify", "sim.up", "sim.down", "sim.status"),
}


def test_the_contracts_names_are_there() -> None:
    assert set(tasks.namespace.task_names) >= CONTRACT


def test_each_has_a_help_of_one_line_and_explains_its_options() -> None:
    for name in tasks.namespace.task_names:
        task = tasks.namespace[name]
        assert isinstance(task, KitTask)
        first = (task.__doc__ or "").splitlines()[0]
        assert 10 < len(first) <= 61, (name, first)
        for argument in task.get_arguments():
            assert not argument.positional, (name, argument)
            assert argument.help, f"invoke {name} --{argument.name} has no help"


def test_no_option_is_named_like_one_of_invokes_own() -> None:
    core = {name for argument in [*Stock().core_args(), *Stock().task_args()] for name in argument.names}
    for name in tasks.namespace.task_names:
        for argument in tasks.namespace[name].get_arguments():
            assert not core & set(argument.names), (name, argument)
            assert all(len(option) > 1 for option in argument.names), (name, argument)


def test_each_has_format_and_hosts_under_both_names() -> None:
    for name in tasks.namespace.task_names:
        options = {option for argument in tasks.namespace[name].get_arguments() for option in argument.names}
        assert "format" in options
        if name in ("probe", "plan", "provision", "drift", "verify", "fleet.lock"):
            assert {"host", "hosts"} <= options


def test_the_program_is_invokes_own() -> None:
    assert issubclass(Program, Stock)


def test_listing_imports_nothing_heavy() -> None:
    """How long it takes is for `make bench-provision` to say."""
    code = "import sys, tasks; print([m for m in ('pydantic', 'ansible', 'jinja2', 'rich', 'ruamel') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tasks.__file__.rpartition("/")[0], check=True
    )
    assert done.stdout.strip() == "[]"


def test_the_shipped_fleet_is_valid_from_any_folder(invoke: Invoke) -> None:
    told = invoke("fleet.check", "--format", "json", planted=False)
    assert told.code == 0
    (fleet,) = told.document["result"]["fleets"]
    assert (fleet["hosts"], fleet["examples"]) == ([], ["example"])


def test_an_engine_and_an_image_that_nobody_declared_are_told(tmp_path: Path) -> None:
    fleet = example_fleet(tmp_path / "fleet")
    host = fleet / "hosts/example.yml"
    host.write_text(host.read_text().replace("engine: production", "engine: fast").replace("image: b300", "image: b301"))
    failures = commands.check([fleet]).failures
    assert [f.code for f in failures] == ["spec.unknown_engine", "spec.unknown_image"]
    assert "production" in failures[0].expected and "b300" in failures[1].expected
    line = host.read_text().splitlines().index("engine: fast") + 1
    assert failures[0].where.endswith(f"hosts/example.yml:{line} engine")


def test_the_example_is_checked_and_is_no_host(invoke: Invoke, tmp_path: Path) -> None:
    """An operator's `all` is what they run; the example's address answers to nobody."""
    folder = tmp_path / "fleet"
    shutil.copytree(paths.ROOT / "fleet", folder)
    told = invoke("plan", "--host", "all", "--format", "json", planted=False, B300KIT_FLEET=str(folder))
    assert told.code == 2
    assert [failure["code"] for failure in told.document["failures"]] == ["cli.no_host"]
    for old, new, code in (
        ("sms: 148", "smss: 148", "spec.unknown_key"),
        ("- containerd", "- containerd.io", "spec.lock_entry"),
        ("name: example", "name: other", "spec.file_name"),
    ):
        text = (paths.ROOT / "fleet/examples/example.yml").read_text()
        assert old in text
        (folder / "examples/example.yml").write_text(text.replace(old, new, 1))
        told = invoke("fleet.check", "--format", "json", planted=False, B300KIT_FLEET=str(folder))
        assert told.code == 2
        assert [failure["code"] for failure in told.document["failures"]] == [code]
        assert "examples/example.yml:" in told.document["failures"][0]["where"]


def test_the_schemas_are_those_of_the_models(invoke: Invoke) -> None:
    assert invoke("fleet.schema", "--check", planted=False).code == 0
