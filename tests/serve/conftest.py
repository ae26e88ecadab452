"""Two real engines, one rank each, and two real routers; the fleet folder of the tests holds a reference made by the first."""

from __future__ import annotations

import secrets
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kit.engine.load import folders
from kit.gates import pinned, reference_store
from kit.gates.commands import gate
from kit.gates.gather import numeric
from kit.gates.gather.client import Engine
from kit.gates.identity import Pass
from kit.gates.reference import NAMESPACE, Reference
from kit.record.store import Run
from kit.router.client import RouterClient
from kit.router.flow import Pool
from kit.router.model import Health, Router, RouterFile
from tests.serve.loopback import MODELS, PYTHON, LoopbackNode, free_port, profile, router

HEALTH = Health(timeout_s=5, failures=3)
"""Two cores for everything: a prefill takes seconds here."""
pytestmark = pytest.mark.serve


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not PYTHON.exists() or not (MODELS / "tiny").is_dir():
        pytest.fail(f"no engine for the tests: make serve-venv (looked for {PYTHON} and {MODELS / 'tiny'})")
    path = tmp_path_factory.mktemp("serve")
    fleet = path / "fleet"
    fleet.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("B300KIT_FLEET", str(fleet))
        patch.setenv("B300KIT_RUNS", str(path / "runs"))
        yield path


@pytest.fixture(scope="session")
def nodes(folder: Path) -> Iterator[tuple[LoopbackNode, LoopbackNode]]:
    key = secrets.token_hex(16)
    made = tuple(LoopbackNode(f"node-{name}", folder / name, profile(), free_port(), key) for name in "ab")
    try:
        for node in made:
            node.start()
        for node in made:
            node.wait()
        yield made[0], made[1]
    finally:
        for node in made:
            node.stop()


@pytest.fixture(scope="session")
def reference(folder: Path, nodes: tuple[LoopbackNode, LoopbackNode]) -> Reference:
    """Made by the first engine, signed with a key of the test."""
    fleet, signer = folder / "fleet", folder / "signer"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(signer)], check=True)
    public = " ".join((folder / "signer.pub").read_text().split()[:2])
    (fleet / "reference_signers").write_text(f'b300kit namespaces="{NAMESPACE}" {public}\n')
    node = nodes[0]
    prompts = pinned.load_prompts(node.profile.gates.prompts, folders())
    size = node.profile.gates.sizes.greedy
    assert size is not None
    with Engine(node.url, node.key) as engine:
        outputs, _ = numeric.decode(engine, prompts, size)
    who = node.identity()
    made = Reference(
        numerics=node.profile.numerics,
        profile=node.profile.name,
        image_id=str(who.image_id),
        tokens=size.tokens,
        weights_sha256=str(who.weights_sha256),
        argv_sha256=str(who.argv_sha256),
        prompts_sha256=prompts.sha256(),
        outputs=outputs,
        run="test",
        recorded=datetime.now(UTC).isoformat(),
        replaces=None,
        reason="made by the test itself",
    )
    reference_store.store(fleet, made, signer)
    return made


@pytest.fixture(scope="session")
def passes(nodes: tuple[LoopbackNode, LoopbackNode], reference: Reference) -> dict[str, Pass]:
    """Each engine through every gate that its profile requires."""
    from kit import paths

    out = {}
    for node in nodes:
        with Run.create("smoke", ["test"], paths.runs_dir()) as run:
            results, given, outcome = gate(node.subject(), run)
        assert given is not None, outcome.result["table"]
        assert {one.name for one in results if one.required} == set(node.profile.gates.required)
        out[node.name] = given
    return out


@pytest.fixture(scope="session")
def router_ports() -> tuple[int, int]:
    return free_port(), free_port()


@pytest.fixture
def pool(folder: Path, router_ports: tuple[int, int]) -> Iterator[Pool]:
    """Two routers, empty at first, with a key."""
    key = secrets.token_hex(16)
    declared = tuple(Router(name=f"router-{i}", url=f"http://127.0.0.1:{port}") for i, port in enumerate(router_ports))
    file = RouterFile(schema_version=1, routers=declared, health=HEALTH, watch_s=3, drain_s=120)
    with ExitStack() as stack:
        for one, port in zip(declared, router_ports, strict=True):
            stack.enter_context(router(folder / one.name, port, key, HEALTH))
        clients = {one.name: stack.enter_context(RouterClient(one.name, one.url, key)) for one in declared}
        yield Pool(file, clients, dict.fromkeys(clients, key))
