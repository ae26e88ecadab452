"""``ansible-inventory -i fleet``: the same hosts, keys and options as invoke."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kit import paths
from kit.apply.ssh import ssh_options
from kit.spec.load import load_fleet
from tests.unit.spec.conftest import example_fleet

PROGRAM = Path(sys.executable).with_name("ansible-inventory")


def ansible(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(PROGRAM), *words], cwd=paths.ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fleet of one host."""
    return example_fleet(tmp_path_factory.mktemp("ansible") / "fleet")


@pytest.fixture(scope="module")
def listed(fleet: Path) -> dict[str, Any]:
    """The fleet as Ansible sees it, told without a warning."""
    done = ansible("-i", str(fleet), "--list")
    assert (done.returncode, done.stderr) == (0, "")
    parsed: dict[str, Any] = json.loads(done.stdout)
    return parsed


def test_hosts_and_groups_are_the_fleets(listed: dict[str, Any]) -> None:
    assert listed["b300"]["hosts"] == ["example"]
    assert list(listed["_meta"]["hostvars"]) == ["example"]


def test_the_shipped_fleet_is_an_inventory_without_hosts() -> None:
    done = ansible("-i", "fleet", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["_meta"]["hostvars"] == {}


def test_ssh_is_called_as_invoke_calls_it(listed: dict[str, Any], fleet: Path) -> None:
    spec = load_fleet(fleet).hosts["example"]
    # Text is marked as not to be templated, so that no spec can run a Jinja2 expression.
    marked = listed["_meta"]["hostvars"]["example"]
    variables = {key: value["__ansible_unsafe"] if isinstance(value, dict) else value for key, value in marked.items()}
    assert (variables["ansible_host"], variables["ansible_port"], variables["ansible_user"]) == ("192.0.2.10", 22, "operator")
    assert shlex.split(variables["ansible_ssh_common_args"]) == ssh_options(spec.connection, "example")
    assert variables["ansible_ssh_args"] == ""


def test_a_broken_spec_ends_ansible_too(tmp_path: Path) -> None:
    path = example_fleet(tmp_path / "fleet") / "hosts/example.yml"
    path.write_text(path.read_text().replace("sms: 148", "smss: 148"))
    done = ansible("-i", str(tmp_path / "fleet"), "--list")
    assert "did you mean 'sms'?" in done.stderr
    assert done.returncode != 0
