"""A host of the fleet as a node: read over ssh, written by Ansible, its engine reached past the closed port by a tunnel. Edge."""

from __future__ import annotations

import hashlib
import json
import logging
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kit.apply import ansible
from kit.apply.result import ApplyEvent
from kit.apply.ssh import Remote
from kit.apply.ssh_client import ssh_options
from kit.cores.model import Assignment
from kit.engine import unit
from kit.engine.model import EngineProfile
from kit.errors import ExitCode, KitError, failure
from kit.facts.collect import collect
from kit.facts.unknown import is_known
from kit.gates.commands import Subject
from kit.gates.identity import Identity
from kit.gates.judges import cores, hardware, image
from kit.image.start import in_root
from kit.plan.wanted import wanted
from kit.record.store import Run
from kit.router.model import Membership
from kit.spec.target import Target

log = logging.getLogger("kit.host")
MARKER = "/var/lib/b300kit/membership.json"
READER = Path(__file__).parent.parent / "gates" / "gather" / "on_host.py"
LOG_LINES = 20000
SHARE = "/usr/share/b300kit"


@dataclass
class HostSubject(Subject):
    """For the gates."""

    node: HostNode | None = None

    def identity(self) -> Identity:
        assert self.node is not None
        return self.node.identity()


class HostSite:
    """The machine under a host's engine."""

    def __init__(self, node: HostNode) -> None:
        self._node = node
        self.name = node.name

    def log(self) -> str | None:
        return self._node.journal()

    def environment(self) -> Mapping[str, str] | None:
        found = self._node.read().get("environment")
        return dict(found) if found is not None else None

    def looks(self) -> tuple[cores.Look, ...] | None:
        found = self._node.read().get("looks")
        return tuple(cores.Look.model_validate(one) for one in found) if found is not None else None

    def hardware(self) -> hardware.Evidence | None:
        """By the same probe as the plan's, now: clocks are those under whatever load there is."""
        spec = self._node.target.spec
        facts, _ = collect(self._node.target, wanted(spec), self._node.remote)
        stack = facts.gpu
        gpus = stack.gpus if is_known(stack) and is_known(stack.gpus) else None
        samples = [
            hardware.GpuSample(
                index=number, sms=_known(gpu.sms), sm_clock_mhz=_known(gpu.sm_clock_mhz), fabric=_known(gpu.fabric_state)
            )
            for number, gpu in enumerate(gpus or ())
        ]
        xids = stack.xids_since_boot if is_known(stack) and is_known(stack.xids_since_boot) else None
        return hardware.Evidence(
            count=spec.gpus.count, sms=spec.gpus.sms, sm_clock_mhz=spec.gpus.sm_clock_mhz, fabric=spec.gpus.fabric,
            gpus=tuple(samples) if gpus is not None else None, xids=xids,
        )  # fmt: skip

    def image(self) -> image.Evidence | None:
        """The image's own checker, run on the root that the unit runs from, as its own user."""
        settings = self._node.read().get("settings") or {}
        wanted_id, root = self._node.image_id, settings.get("root")
        if wanted_id is None or not root:
            return None
        words = in_root(root, str(settings.get("user", "")), [], [settings["python"], "-I", f"{SHARE}/checker.py", "verify"])
        done = self._node.remote.run(self._node.remote.privileged(words), timeout_s=600)
        said = [line for line in done.stderr.splitlines() if line.startswith("b300kit-failure:")]
        if done.status != 0 and not said:
            return image.Evidence(expected_id=wanted_id, found_id=settings.get("image_id"), differences=None)
        files = len(json.loads(done.stdout).get("files", {})) if done.status == 0 else 1
        return image.Evidence(expected_id=wanted_id, found_id=settings.get("image_id"), differences=tuple(said), files=files)


def _known(fact: Any) -> Any:
    return fact if is_known(fact) else None


class HostNode:
    """One host. ``remote`` and ``run`` are the caller's; the tunnel is opened when it is first needed."""

    def __init__(
        self,
        target: Target,
        profile: EngineProfile,
        remote: Remote,
        run: Run,
        key_file: Path | None,
        plan_digest: str | None = None,
    ) -> None:
        self.name = target.name
        self.target, self.profile, self.remote, self.run = target, profile, remote, run
        self.key_file = key_file
        self.key = key_file.read_text().strip() if key_file is not None else None
        self.plan_digest = plan_digest
        self.image_id: str | None = None
        spec = target.spec
        self.port = int(spec.network.engine.ports.partition("-")[0])
        self.url = f"http://{spec.connection.address}:{self.port}"
        self._tunnel: int | None = None

    # Reading.

    def unit_state(self) -> dict[str, str]:
        """Of the engine's unit: ActiveState, MainPID, InvocationID, ..."""
        names = "LoadState,ActiveState,SubState,MainPID,InvocationID,NRestarts,ActiveEnterTimestamp"
        done = self.remote.run(["systemctl", "show", "--no-pager", "-p", names, unit.UNIT], timeout_s=20)
        pairs = (line.partition("=") for line in done.stdout.decode(errors="replace").splitlines())
        return {name: value for name, _, value in pairs}

    def read(self, weights: bool = False) -> dict[str, Any]:
        """What ``on_host.py`` prints. Raises KitError when the host cannot be reached."""
        pid = self.unit_state().get("MainPID", "0") or "0"
        words = ["python3", "-I", "-", pid, *(["weights"] if weights else [])]
        done = self.remote.run(self.remote.privileged(words), stdin=READER.read_bytes(), timeout_s=120)
        try:
            return dict(json.loads(done.stdout))
        except ValueError:
            found = done.stderr.strip()[-300:]
            raise KitError(
                failure("host.engine", self.remote.where, "a JSON document", found, "see the host"), ExitCode.UNREACHABLE
            ) from None

    def journal(self) -> str | None:
        """The engine's log of this start, no other."""
        invocation = self.unit_state().get("InvocationID", "")
        if not invocation:
            return None
        words = ["journalctl", "--quiet", "--no-pager", "-o", "cat", "-n", str(LOG_LINES), f"_SYSTEMD_INVOCATION_ID={invocation}"]
        done = self.remote.run(self.remote.privileged(words), timeout_s=60)
        return done.stdout.decode(errors="replace") if done.status == 0 else None

    def last_words(self) -> str:
        """Errors of the latest starts: the exception, or the last lines there are."""
        words = ["journalctl", "--quiet", "--no-pager", "-o", "cat", "-n", "400", "-u", unit.UNIT]
        done = self.remote.run(self.remote.privileged(words), timeout_s=60)
        lines = [line for line in done.stdout.decode(errors="replace").splitlines() if "server_args=" not in line]
        telling = [line for line in lines if "Error" in line or "exited" in line]
        return " | ".join((telling or lines)[-4:])[-700:] or "no log"

    def identity(self) -> Identity:
        found, state = self.read(weights=True), self.unit_state()
        settings = found.get("settings") or {}
        running = state.get("ActiveState") == "active" and bool(found.get("arguments"))
        return Identity(
            host=self.name,
            profile=str(settings.get("profile", self.profile.name)),
            model=self.profile.model.served_name,
            image_id=settings.get("image_id"),
            plan_digest=self.plan_digest,
            argv_sha256=_command_sha256(found, settings) if running else None,
            weights_sha256=found.get("weights_sha256"),
            boot_id=found.get("boot_id"),
            invocation_id=state.get("InvocationID") or None if running else None,
        )

    def membership(self) -> Membership | None:
        found = self.read().get("membership")
        return Membership.model_validate(found) if found and "state" in found and "since" in found else None

    # Writing: Ansible alone.

    def _play(self, **variables: Any) -> None:
        def tell(event: ApplyEvent) -> None:
            log.log(logging.DEBUG if event.status in ("ok", "skipped") else logging.INFO, "%s: %s", event.host, event.line())

        result = ansible.play("engine", {self.target: variables}, self.run.path, tell, 1)[self.name]
        if result.failures:
            raise KitError(list(result.failures), result.exit_code)

    def mark(self, membership: Membership) -> None:
        # As one JSON string; the curly brackets are data, not a template.
        text = {"__ansible_unsafe": membership.model_dump_json(indent=1) + "\n"}
        self._play(engine_marker=text, engine_marker_file=MARKER)

    def open_port(self) -> None:
        self._play(engine_port="open")

    def close_port(self) -> None:
        self._play(engine_port="close", engine_port_rules=unit.CLOSED)

    def stop(self) -> None:
        if self.unit_state().get("ActiveState") == "inactive":
            return
        self._play(engine_stop=[unit.UNIT])

    def start(self) -> None:
        self._play(engine_start=[unit.UNIT])

    def install(self, picture: unit.Image, assignment: Assignment | None, driver: str) -> unit.EngineFiles:
        """Write the unit and all that belongs to it; the engine is not started."""
        script = (Path(unit.__file__).parent / "inside" / "serve.py").read_text()
        made = unit.engine_files(self.target.spec, self.profile, picture, script, assignment, driver)
        cache = unit.cache_folder(self.target.spec, self.profile, picture, driver)
        self._play(
            engine_folders=[{"path": cache, "owner": picture.uid, "mode": "0750"}],
            engine_key_source=str(self.key_file) if self.key_file is not None else "",
            engine_key_file=unit.KEY_FILE,
            engine_key_owner=picture.uid if self.profile.runtime == "docker" else 0,
            engine_files=[
                {
                    **f.model_dump(include={"path", "mode", "owner", "group", "check_with"}, exclude_none=True),
                    "content": {"__ansible_unsafe": f.content},
                }
                for f in made.files
            ],
            engine_daemon_reload=True,
        )
        return made

    # The engine, past its closed port.

    def subject(self) -> HostSubject:
        settings = self.read().get("settings") or {}
        seats = {title: tuple(cpus) for title, cpus in (settings.get("seats") or {}).items()}
        return HostSubject(self.name, self.local_url(), self.profile, HostSite(self), self.key, seats, node=self)

    def local_url(self) -> str:
        """The engine's port on this machine, through the shared ssh connection."""
        if self._tunnel is None:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            c = self.target.spec.connection
            # The connection must be there before a forward can be asked of it.
            self.remote.run(["true"], timeout_s=30)
            forward = f"127.0.0.1:{port}:{c.address}:{self.port}"
            words = ["ssh", *ssh_options(c, self.name, self.remote.connect_timeout_s), "-p", str(c.port), "-l", c.user]
            done = subprocess.run(
                [*words, "-O", "forward", "-L", forward, "--", c.address],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=30,
                check=False,
            )
            if done.returncode != 0:
                found = done.stderr.decode(errors="replace").strip()
                step = "does the host's sshd allow TCP forwarding?"
                raise KitError(
                    failure("ssh.forward", self.remote.where, "a tunnel to the engine", found, step), ExitCode.UNREACHABLE
                )
            self._tunnel = port
        return f"http://127.0.0.1:{self._tunnel}"


def _command_sha256(found: Mapping[str, Any], settings: Mapping[str, Any]) -> str | None:
    """Of the running process, not of a file: arguments after the script, and the variables that this kit sets."""
    arguments = found.get("arguments")
    environment = found.get("environment")
    if not arguments or environment is None:
        return None
    body = json.dumps([arguments[1:], sorted(environment.items()), settings.get("argv_sha256")], ensure_ascii=False)
    return hashlib.sha256(body.encode()).hexdigest()
