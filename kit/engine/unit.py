"""The engine's files on a host: its unit, the closed port, what pins its schedulers. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kit.cores.model import Assignment
from kit.engine.argv import Command, Placement, command
from kit.engine.model import EngineProfile
from kit.plan import render
from kit.plan.model import ManagedFile
from kit.plan.where import CONFIG_DIR, LIBRARY_DIR, unit_file
from kit.spec.model import HostSpec

UNIT = "b300kit-engine.service"
PIN_UNIT = "b300kit-engine-pin.service"
CLOSED = f"{CONFIG_DIR}/engine-closed.nft"
SETTINGS = f"{CONFIG_DIR}/engine.json"
KEY_FILE = f"{CONFIG_DIR}/engine-api-key"
CREDENTIAL = "engine-api-key"
SCRIPT = f"{LIBRARY_DIR}/engine/serve.py"
PIN_SCRIPT = f"{LIBRARY_DIR}/engine_pin.py"
STOP_S = 120
SCHEDULER = "sglang::scheduler_TP{}"
DOCKER = "/usr/bin/docker"
CONTAINER = "b300kit-engine"
TMP = "/tmp"  # noqa: S108  the container's own
GPU_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")


@dataclass(frozen=True)
class Image:
    """An image as it lies on a host."""

    image_id: str
    root: str
    """Its root file system (rootdir), or its reference (docker)."""
    python: str
    uid: int
    user: str
    home: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EngineFiles:
    """What a host gets."""

    files: tuple[ManagedFile, ...]
    command: Command
    seats: Mapping[str, tuple[int, ...]]


def seats(assignment: Assignment | None) -> dict[str, tuple[int, ...]]:
    """Process title -> CPUs of its seat: the core with its sibling threads."""
    return (
        {SCHEDULER.format(rank): seat.cpus for rank, seat in enumerate(assignment.schedulers)} if assignment is not None else {}
    )


def cache_folder(spec: HostSpec, profile: EngineProfile, image: Image, driver: str) -> str:
    """Of compiled kernels: keyed by all that they depend on, so that a changed image or driver never meets old ones."""
    architecture = f"sm{spec.gpus.compute_capability.replace('.', '')}"
    return f"{spec.data_dir}/cache/{image.image_id.removeprefix('sha256:')[:16]}-{architecture}-{driver}"


def engine_files(
    spec: HostSpec, profile: EngineProfile, image: Image, serve_script: str, assignment: Assignment | None, driver: str
) -> EngineFiles:
    """Everything, rendered. ``serve_script`` is the text of ``inside/serve.py``."""
    first = int(spec.network.engine.ports.partition("-")[0])
    where = seats(assignment)
    docker = profile.runtime == "docker"
    placement = Placement(host=spec.connection.address, port=first, key_file=KEY_FILE if docker else f"%{CREDENTIAL}")
    made = command(profile, placement)
    cpus = sorted(assignment.serving_cpus) if assignment is not None else []
    cache = cache_folder(spec, profile, image, driver)
    run = _docker if docker else _rootdir
    words, lines = run(spec, profile, image, made, cache, cpus)
    closed = ManagedFile(
        path=CLOSED,
        content=render.text("engine-closed.nft.j2", port=spec.network.engine.ports),
        check_with="/usr/sbin/nft --check --file %s",
    )
    unit = render.unit(
        UNIT, "engine.service.j2", profile=profile.name, after=" docker.service" if docker else "",
        closed=CLOSED, command=quoted(words), lines=lines,
        memlock="infinity" if spec.memory.memlock_kib == "unlimited" else spec.memory.memlock_kib * 1024,
        nofile=spec.memory.nofile, stop_s=STOP_S,
    )  # fmt: skip
    settings = {
        "profile": profile.name,
        "image_id": image.image_id,
        "argv_sha256": made.sha256(),
        "numerics": profile.numerics,
        "model_path": profile.model.path,
        "cache": cache,
        "uid": image.uid,
        "user": image.user,
        "python": image.python,
        "root": image.root,
        "seats": {title: list(cpus) for title, cpus in where.items()},
    }
    return EngineFiles(
        (
            closed,
            render.settings(SETTINGS, settings),
            ManagedFile(path=SCRIPT, content=serve_script, mode="0755"),
            render.script(PIN_SCRIPT, "engine_pin.py"),
            ManagedFile(
                path=unit_file(PIN_UNIT), content=render.text("engine-pin.service.j2", script=PIN_SCRIPT, settings=SETTINGS)
            ),
            unit,
        ),
        made,
        where,
    )


def _rootdir(
    spec: HostSpec, profile: EngineProfile, image: Image, made: Command, cache: str, cpus: Sequence[int]
) -> tuple[tuple[str, ...], list[str]]:
    """systemd runs the image's root itself: read-only but for the cache of compiled kernels, /tmp and /dev/shm."""
    environment = {**image.environment, **made.environment, "HOME": image.home, "XDG_CACHE_HOME": image.home}
    lines = [
        f"LoadCredential={CREDENTIAL}:{KEY_FILE}",
        f"RootDirectory={image.root}",
        "RootDirectoryStartOnly=yes",
        "MountAPIVFS=yes",
        f"BindReadOnlyPaths={profile.model.path} {SCRIPT}",
        f"BindPaths={cache}:{image.home}",
        f"User={image.uid}",
        f"WorkingDirectory={image.home}",
        "ProtectSystem=strict",
        f"ReadWritePaths={image.home}",
        "PrivateTmp=yes",
        "NoNewPrivileges=yes",
        "ProtectKernelTunables=yes",
        "ProtectControlGroups=yes",
        "RestrictSUIDSGID=yes",
    ]
    if profile.device == "cpu":
        # It needs no device; gloo reads each PCI device's class, and a machine that shows only part of its tree ends it.
        lines.append("TemporaryFileSystem=/sys/bus/pci/devices:ro")
    if profile.device == "cuda":
        devices = [*(f"/dev/nvidia{gpu}" for gpu in range(spec.gpus.count)), *GPU_DEVICES]
        lines += ["DevicePolicy=closed", *(f"DeviceAllow={device} rw" for device in devices)]
        lines += [f"AllowedCPUs={render.cpu_list(cpus)}"] if cpus else []
    lines += [f"Environment={quoted((f'{name}={value}',))}" for name, value in environment.items()]
    return made.argv(image.python, SCRIPT), lines


def _docker(
    spec: HostSpec, profile: EngineProfile, image: Image, made: Command, cache: str, cpus: Sequence[int]
) -> tuple[tuple[str, ...], list[str]]:
    """A container with the devices named one by one, which survive a daemon-reload; no --privileged, no socket."""
    words = [DOCKER, "run", "--rm", "--name", CONTAINER, "--init", "--network", "host", "--ipc", "private", "--read-only"]
    words += ["--shm-size", f"{spec.memory.shm_gib:g}g", "--ulimit", "memlock=-1:-1", "--ulimit", f"nofile={spec.memory.nofile}"]
    words += [
        "--tmpfs",
        f"{TMP}:rw,exec,size=16g",
        "--cap-drop",
        "ALL",
        "--cap-add",
        "SYS_NICE",
        "--security-opt",
        "no-new-privileges",
    ]
    words += ["--user", str(image.uid), "--stop-timeout", str(STOP_S)]
    words += ["--cpuset-cpus", render.cpu_list(cpus)] if cpus else []
    for gpu in range(spec.gpus.count):
        words += ["--device", f"/dev/nvidia{gpu}"]
    for device in GPU_DEVICES:
        words += ["--device", device]
    words += ["--mount", f"type=bind,src={profile.model.path},dst={profile.model.path},readonly"]
    words += ["--mount", f"type=bind,src={SCRIPT},dst={SCRIPT},readonly", "--mount", f"type=bind,src={cache},dst={image.home}"]
    # The file itself, owned by the engine's user: a credential of systemd's would be root's, and unreadable in there.
    words += ["--mount", f"type=bind,src={KEY_FILE},dst={KEY_FILE},readonly", "--env", f"HOME={image.home}"]
    for name, value in made.environment.items():
        words += ["--env", f"{name}={value}"]
    # ``docker stop`` signals the container's first process alone; systemd would end the docker client, not the engine.
    lines = [f"ExecStop={DOCKER} stop --time {STOP_S} {CONTAINER}"]
    return (*words, "--entrypoint", image.python, image.root, SCRIPT, *made.arguments), lines


def quoted(words: Sequence[str]) -> str:
    """Words as systemd reads them: ``%`` and ``$`` are themselves."""
    return " ".join(_quoted(word.replace("%", "%%").replace("$", "$$")) for word in words)


def _quoted(text: str) -> str:
    if text and not any(c.isspace() or c in "\"'\\;" for c in text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
