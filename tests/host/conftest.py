"""The outside suite: asserts on a live host what a recorded plan says, by reads of its own. Read-only.

``invoke verify`` runs it as ``pytest tests/host --record=RUN/hosts/NAME``; the record holds spec.yml, plan.json and, where
the cores are decided, assignment.json. Without ``--record`` nothing is collected.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import testinfra
from ruamel.yaml import YAML
from testinfra.host import Host

from kit.apply.ssh import ssh_options
from kit.plan.model import Plan, Step
from kit.spec.model import HostSpec
from tests.host.promise import Broken, holds

HERE = Path(__file__).resolve().parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="folder of one host in a run's record")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Part of ``invoke verify``, not of the default test run: it needs a host and its record."""
    inside = collection_path != HERE / "conftest.py" and HERE in collection_path.parents
    return True if inside and config.getoption("--record", None) is None else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A promise that is not kept is told by its values, not by a traceback."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, Broken):
        report.longrepr = str(call.excinfo.value)
        item.user_properties.extend(call.excinfo.value.parts.items())
    return report


@pytest.fixture(scope="session")
def record(request: pytest.FixtureRequest) -> Path:
    """The host's folder in the record."""
    folder: Path = request.config.getoption("--record")
    return folder


@pytest.fixture(scope="session")
def spec(record: Path) -> HostSpec:
    """What is declared."""
    return HostSpec.model_validate(YAML(typ="safe", pure=True).load((record / "spec.yml").read_text()))


@pytest.fixture(scope="session")
def plan(record: Path) -> Plan:
    """The newest plan of the record."""
    newest = max(record.glob("*plan*.json"), key=lambda path: path.stat().st_mtime_ns)
    return Plan.model_validate_json(newest.read_text())


@pytest.fixture(scope="session")
def steps(plan: Plan) -> dict[str, Step]:
    """The plan's steps by id."""
    return {step.id: step for step in plan.steps}


@pytest.fixture(scope="session")
def assignment(record: Path) -> dict[str, Any]:
    """Who sits on which CPUs."""
    files = sorted(record.glob("assignment*.json"), key=lambda path: path.stat().st_mtime_ns)
    holds(bool(files), "who sits on which cores", "decided", "not decided: the plan says what of the fast cores is not known")
    found: dict[str, Any] = json.loads(files[-1].read_text())
    return found


@pytest.fixture(scope="session")
def host(spec: HostSpec) -> Host:
    """The host over the same pinned, shared connection as everything else here."""
    connection = spec.connection
    found: Host = testinfra.get_host(
        f"ssh://{connection.user}@{connection.address}:{connection.port}",
        ssh_extra_args=shlex.join(ssh_options(connection, spec.name)),
        sudo=connection.user != "root",
        ssh_config=None,
    )
    return found
