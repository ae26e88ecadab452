"""Real engines and routers on loopback, as processes of a test; the node of one is what a host is to the flows under test.

What a loopback node lacks is the firewall: its port is open as long as the engine runs. Everything else is the real thing.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit import paths
from kit.engine.argv import Placement, command
from kit.engine.load import load_profile
from kit.engine.model import EngineProfile
from kit.errors import KitError
from kit.gates.commands import LocalSubject, local_subject
from kit.gates.gather import local
from kit.gates.gather.client import Engine
from kit.gates.identity import Identity
from kit.gates.names import GateName
from kit.router.argv import router_arguments
from kit.router.model import Health, Membership

PYTHON = paths.cache_dir() / "serve-venv" / "bin" / "python"
MODELS = paths.cache_dir() / "models"
SERVE = paths.ROOT / "kit" / "engine" / "inside" / "serve.py"
ROUTER = paths.ROOT / "kit" / "router" / "inside" / "serve_router.py"
QUICK: tuple[GateName, ...] = ("configuration", "greedy", "agreement")
READY_S = 600.0


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def profile(name: str = "cpu-tiny", tensor: int = 1) -> EngineProfile:
    """One rank, and the gates that are quick: what is tested here is what a pass opens, on two cores for everything."""
    whole = load_profile(name, [paths.ROOT / "fleet"])
    left = {gate: "left to the profile's own smoke run" for gate in whole.gates.required if gate not in QUICK}
    gates = whole.gates.model_copy(update={"required": QUICK, "not_applicable": {**whole.gates.not_applicable, **left}})
    environment = {name: value for name, value in whole.environment.items() if name != "SGLANG_CPU_OMP_THREADS_BIND"}
    parallel = whole.parallel.model_copy(update={"tensor": tensor})
    return whole.model_copy(update={"parallel": parallel, "gates": gates, "environment": environment})


class LoopbackNode:
    """An engine as a child process."""

    def __init__(self, name: str, folder: Path, one: EngineProfile, port: int, key: str | None = None) -> None:
        self.name, self.profile, self.key, self.port = name, one, key, port
        self.url = f"http://127.0.0.1:{port}"
        self.folder = folder
        self.port_open = False
        self.model = MODELS / "tiny"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def log(self) -> Path:
        return self.folder / "engine.log"

    def start(self) -> None:
        self.port_open = False
        key = self.folder / "key"
        if self.key:
            key.write_text(self.key)
        made = command(
            self.running_profile(),
            Placement("127.0.0.1", self.port, model_path=str(self.model), key_file=str(key) if self.key else None),
        )
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "OMP_NUM_THREADS": "1", **made.environment}
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                made.argv(str(PYTHON), str(SERVE)),
                env=environment,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def release(self) -> str:
        path = self.folder / "release"
        return path.read_text() if path.exists() else "float32"

    def deploy(self, release: str) -> None:
        (self.folder / "release").write_text(release)

    def running_profile(self) -> EngineProfile:
        """A release is a data type here: another one changes bytes and nothing else."""
        return self.profile.model_copy(update={"model": self.profile.model.model_copy(update={"dtype": self.release()})})

    def wait(self, timeout_s: float = READY_S) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            assert self._process is not None and self._process.poll() is None, self.log.read_text(errors="replace")[-2000:]
            try:
                with Engine(self.url, self.key, timeout_s=30) as engine:
                    if engine.health() == 200:
                        return
            except KitError:
                time.sleep(1)
        raise AssertionError(f"not ready in {timeout_s} s: {self.log.read_text(errors='replace')[-2000:]}")

    def stop(self) -> None:
        self.port_open = False
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)

    def schedulers(self) -> list[int]:
        assert self._process is not None
        out = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    session = (entry / "stat").read_text().rpartition(")")[2].split()[3]
                    title = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if session == str(self._process.pid) and title.startswith(b"sglang::scheduler"):
                    out.append(int(entry.name))
        return out

    def kill(self) -> None:
        """SIGKILL to all of it at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(30)

    def identity(self) -> Identity:
        return local.identity(self.name, self.profile, local.listener(self.port))

    def subject(self) -> LocalSubject:
        made = local_subject(self.url, self.profile, self.log, self.key)
        made.name = made.site.name = self.name
        return made

    def _marker(self) -> Path:
        return self.folder / "membership.json"

    def membership(self) -> Membership | None:
        path = self._marker()
        return Membership.model_validate_json(path.read_text()) if path.exists() else None

    def mark(self, membership: Membership) -> None:
        self._marker().write_text(membership.model_dump_json())

    def open_port(self) -> None:
        self.port_open = True

    def close_port(self) -> None:
        self.port_open = False


@contextmanager
def router(folder: Path, port: int, key: str | None = None, health: Health | None = None) -> Iterator[subprocess.Popen[bytes]]:
    """A real sglang-router."""
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    if key:
        (folder / "router-key").write_text(key)
        environment["B300KIT_ROUTER_KEY_FILE"] = str(folder / "router-key")
    argv = (str(PYTHON), str(ROUTER), *router_arguments("127.0.0.1", port, free_port(), health or Health()))
    with (folder / f"router-{port}.log").open("wb") as log:
        process = subprocess.Popen(
            argv, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        deadline = time.monotonic() + 120
        while True:
            assert process.poll() is None, (folder / f"router-{port}.log").read_text()[-1000:]
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield process
    finally:
        process.terminate()
        process.wait(20)
