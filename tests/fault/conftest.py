"""Two simulated hosts that all tests here share, a fleet folder of them, and a fleet folder that needs none."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kit.sim import flow
from tests.cli import Ran, finish, fleet_of, invoke, start
from tests.sim.conftest import _sim_possible, on_host
from tests.unit.spec.conftest import edit, example_fleet

__all__ = ["_sim_possible", "edit", "on_host"]

Call = Callable[..., Ran]


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port of this machine that nobody may call: what is wrong in a spec is told before any host is."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server
        with pytest.raises(BlockingIOError):
            server.accept()


@pytest.fixture
def fleet(tmp_path: Path, listener: socket.socket) -> Path:
    """The shipped example as a host of this machine."""
    folder = example_fleet(tmp_path / "fleet")
    host = folder / "hosts/example.yml"
    text = host.read_text()
    assert "address: 192.0.2.10\n  port: 22\n" in text
    place = f"address: 127.0.0.1\n  port: {listener.getsockname()[1]}\n"
    host.write_text(text.replace("address: 192.0.2.10\n  port: 22\n", place))
    return folder


@pytest.fixture
def refused(fleet: Path, tmp_path: Path) -> Call:
    """A command that must end before it does anything: exit 2, no record, every failure with place, what and next step."""

    def run(*words: str, **variables: str | Path) -> Ran:
        runs = tmp_path / "runs"
        ran = invoke(*words, B300KIT_FLEET=fleet, B300KIT_RUNS=runs, B300KIT_CACHE=tmp_path / "cache", **variables)
        assert "Traceback" not in ran.err
        assert ran.code == 2, ran.out + ran.err
        for failure in ran.document["failures"]:
            assert failure["where"]
            assert failure["expected"]
            assert failure["found"]
            assert failure["next"]
        assert not runs.exists()
        assert not (tmp_path / "cache").exists(), "a fault of ours was kept there"
        return ran

    return run


@pytest.fixture(scope="session")
def names(_sim_possible: None) -> Iterator[tuple[str, str]]:
    """Two hosts, new when the first test gets them."""
    names = (f"t{os.getpid()}-fault-a", f"t{os.getpid()}-fault-b")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: flow.up(name, "b300-4"), names))
    yield names
    for name in names:
        flow.down(name)


@pytest.fixture(scope="session")
def nodes(names: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Their fleet folder, with a space in its path."""
    return fleet_of(tmp_path_factory.mktemp("fault") / "my fleet", names, {"both": names})


@pytest.fixture(scope="session")
def coming(names: tuple[str, str], nodes: Path, tmp_path_factory: pytest.TempPathFactory) -> subprocess.Popen[str]:
    """The second host's first provision, begun."""
    runs = tmp_path_factory.mktemp("whole")
    return start("provision", "--host", names[1], B300KIT_FLEET=nodes, B300KIT_RUNS=runs)


@pytest.fixture(scope="session")
def whole(names: tuple[str, str], coming: subprocess.Popen[str]) -> str:
    """The second host, provisioned in one run that nobody disturbed."""
    ran = finish(coming)
    assert ran.code == 0, ran.out + ran.err
    return names[1]


@pytest.fixture(scope="session")
def node(names: tuple[str, str], nodes: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The first host, provisioned. Each test leaves it so."""
    ran = invoke("provision", "--host", names[0], B300KIT_FLEET=nodes, B300KIT_RUNS=tmp_path_factory.mktemp("first"))
    assert ran.code == 0, ran.out + ran.err
    return names[0]


@pytest.fixture
def call(nodes: Path, tmp_path: Path) -> Call:
    """A command on the two hosts' fleet."""
    return lambda *words, **variables: invoke(*words, **{"B300KIT_FLEET": nodes, "B300KIT_RUNS": tmp_path / "runs"} | variables)
