"""Simulated hosts for tests.

``sim_host(profile)`` gives the name of a running host that tests share: leave it as it was. ``fresh_sim_host(profile)``
makes one for this test alone. Both names work with ``--host``; ``on_host(name, command)`` runs a shell command there.

Without root or the needed packages these tests fail and say what is missing; ``B300KIT_NO_SIM=1`` skips them instead.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.errors import KitError
from kit.sim import flow
from kit.sim.places import Places
from kit.sim.requirements import missing

HERE = Path(__file__).resolve().parent
SimHost = Callable[[str], str]
OnHost = Callable[..., "subprocess.CompletedProcess[str]"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.sim)


@pytest.fixture(scope="session")
def _sim_possible() -> None:
    if os.environ.get("B300KIT_NO_SIM") == "1":
        pytest.skip("B300KIT_NO_SIM=1: simulated hosts are switched off")
    wrong = [f.text() for f in missing()]
    if os.geteuid() != 0 and subprocess.run(["sudo", "-n", "true"], capture_output=True, check=False).returncode != 0:
        wrong.append("simulated hosts need root: run as root, or allow sudo without a password")
    if wrong:
        pytest.fail("; ".join(wrong) + " (B300KIT_NO_SIM=1 skips these tests)", pytrace=False)


def _up(name: str, profile: str) -> str:
    try:
        flow.up(name, profile)
    except KitError as error:
        pytest.fail(f"simulated host {name} ({profile}): {error}", pytrace=False)
    return name


@pytest.fixture(scope="session")
def sim_host(_sim_possible: None) -> Iterator[SimHost]:
    """profile -> name of a host that all tests of this run share."""
    made: dict[str, str] = {}

    def get(profile: str = "b300-4") -> str:
        if profile not in made:
            made[profile] = _up(f"t{os.getpid()}-{profile}", profile)
        return made[profile]

    yield get
    for name in made.values():
        flow.down(name)


@pytest.fixture
def fresh_sim_host(_sim_possible: None, request: pytest.FixtureRequest) -> Iterator[SimHost]:
    """profile -> name of a new host, gone after the test."""
    made: list[str] = []

    def get(profile: str = "b300-4") -> str:
        name = f"t{os.getpid()}-f{abs(hash(request.node.nodeid)) % 10**6}-{len(made)}"
        made.append(name)
        return _up(name, profile)

    yield get
    for name in made:
        flow.down(name)


@pytest.fixture(scope="session")
def on_host(_sim_possible: None) -> OnHost:
    """Run a shell command as user ``ops``; exit 0 is asserted unless ``check=False``. ``port``: of another sshd of the host."""

    def run(
        name: str, command: str, *, check: bool = True, timeout: float = 60, port: int = 0
    ) -> subprocess.CompletedProcess[str]:
        from kit.sim import states

        places = Places.here()
        state = states.read(places, name)
        assert state is not None, f"{name} is not up"
        done = subprocess.run(
            [
                "ssh", "-q", "-i", str(places.client_key), "-p", str(port or state.port), "-o", "BatchMode=yes",
                "-o", "ConnectTimeout=5",
                "-o", "StrictHostKeyChecking=yes", "-o", f"HostKeyAlias={name}", "-o", "UserKnownHostsFile=none",
                "-o", "GlobalKnownHostsFile=none", "-o", f"KnownHostsCommand=/usr/bin/echo {name} {state.host_key}",
                f"ops@{state.address}", command,
            ],
            capture_output=True, text=True, timeout=timeout, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{command!r} on {name}: exit {done.returncode}: {done.stdout} {done.stderr}"
        return done

    return run
