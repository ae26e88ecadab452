"""Bring simulated hosts up and down: the part that needs root. :mod:`kit.sim.flow` calls it, through sudo where needed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from kit import procfs
from kit.detached import DETACHED
from kit.errors import ExitCode, KitError, failure
from kit.files import replace
from kit.sim import declare, leftovers, requirements, states
from kit.sim.commands import run
from kit.sim.hardware import profile as profiles
from kit.sim.hardware.profile import Profile
from kit.sim.locks import exclusive
from kit.sim.machine import cgroups, network, nspawn, qemu, remote, template
from kit.sim.model import HostState, Progress, Removed, Runtime, SimHost
from kit.sim.places import MACHINE_LOCK, Places, address
from kit.sim.rootfs import host_root, layer, mounts
from kit.sim.rootfs.debian import debian_layer
from kit.sim.rootfs.keys import ensure_pair

BOOT_TIMEOUT_S = 60
INOTIFY_LIMIT = Path("/proc/sys/fs/inotify/max_user_instances")
QEMU_TIMEOUT_S = 180
"""From the snapshot; a first boot has its own patience."""


def describe(places: Places, state: HostState, *, created: bool = False, seconds: float = 0.0) -> SimHost:
    """A state and what can be seen of the host now."""
    alive = states.running(state)
    return SimHost(
        name=state.name,
        profile=state.profile,
        runtime=state.runtime,
        address=state.address,
        port=state.port,
        running=alive,
        answers=alive and states.answers(state.address, state.port, 10.0 if state.runtime == "qemu" else 1.0),
        created=created,
        seconds=round(seconds, 2),
        console=str(places.host(state.name).console),
        login=shlex.join(remote.login(places, state)),
    )


def up(places: Places, name: str, profile: str, runtime: Runtime, progress: Progress) -> SimHost:
    """Boot the host unless it runs already. Returns when its sshd answers and its spec is written.

    Raises KitError(USAGE, ``sim.other_profile``) when it is there with another profile, running or stopped; (TIMEOUT,
    ``sim.boot``) when it does not answer in time; then nothing of it is left.
    """
    began = time.monotonic()
    profiles.load(profile)  # a wrong name is said before anything is looked at
    with exclusive(places.sim / "locks" / f"{name}.lock"):
        state = states.read(places, name)
        if state is not None:
            alive = states.running(state)
            if (state.profile, state.runtime) != (profile, runtime):
                there = "up" if alive else "there, stopped,"
                step = f"--profile {state.profile} --runtime {state.runtime}, or first invoke sim.down --name {name}"
                raise KitError(
                    failure(
                        "sim.other_profile", f"simulated host {name}", f"profile {profile} on {runtime}",
                        f"already {there} with {state.profile} on {state.runtime}", step,
                    ),
                    ExitCode.USAGE,
                )  # fmt: skip
            if alive:
                _declare(places, None)
                return describe(places, state)
            progress(f"{name}: had stopped; the same is made again, with a new disk")
        _remove(places, name, state)
        try:
            state = _create(places, name, profile, runtime, progress)
        except BaseException:
            _remove(places, name, states.read(places, name))
            raise
        _declare(places, name)
        return describe(places, state, created=True, seconds=time.monotonic() - began)


def _create(places: Places, name: str, profile: str, runtime: Runtime, progress: Progress) -> HostState:
    hardware = profiles.load(profile)
    if runtime == "qemu":
        hardware = _on_a_machine(profile, hardware)
    debian = debian_layer(places, runtime, progress)
    kit = layer.kit_layer(places, debian, progress)
    own = layer.hardware_layer(places, profile, hardware, kit, progress, own_kernel=runtime == "qemu")
    with exclusive(places.sim / "locks" / "client_key.lock"):
        client = ensure_pair(places.client_key, "b300kit-sim")
    layer.prune(places, {name for known in states.read_all(places) for name in known.layers})
    if runtime == "qemu":
        return _start_qemu(places, name, profile, [own, kit, debian], client, progress)
    return _start_nspawn(places, name, profile, [own, kit, debian], client, hardware.memory_limit_mib, progress)


def _on_a_machine(name: str, hardware: Profile) -> Profile:
    if hardware.memory_limit_mib is not None:
        raise KitError(
            failure("sim.profile", "--profile", "one without a memory limit on qemu", name, "use the default runtime for it"),
            ExitCode.USAGE,
        )
    return profiles.for_machine(hardware, qemu.PACKAGES, qemu.CORES)


def _start_nspawn(
    places: Places, name: str, profile: str, layers: list[Path], client: str, memory_mib: int | None, progress: Progress
) -> HostState:
    requirements.room(requirements.inotify_used(), int(INOTIFY_LIMIT.read_text()))
    at = places.host(name)
    progress(f"{name}: booting ({profile})")
    mounts.compose(layers, at.upper, at.root)
    host_key = host_root.write(at.root, name, client)
    with exclusive(MACHINE_LOCK):
        index = network.free_index(state.index for state in states.read_all(places))
        # Written before anything is made under this index, so that a kill from here on leaves a trace to clean up by.
        state = _new_state(name, profile, "nspawn", index, address(index), 22, host_key, layers)
        states.write(places, state)
        network.connect(index, at.folder)
    at.supervisor_config.write_text(nspawn.prepare(at, name, index, memory_mib))
    state = _supervise(places, state)
    progress(f"{name}: waiting for ssh at {state.address}")
    _wait(places, state, BOOT_TIMEOUT_S)
    remote.settle(places, state, BOOT_TIMEOUT_S)
    return state


def _start_qemu(places: Places, name: str, profile: str, layers: list[Path], client: str, progress: Progress) -> HostState:
    machine = template.template(places, layers, client, progress)
    at = places.host(name)
    at.folder.mkdir(parents=True)
    progress(f"{name}: starting from the snapshot ({profile}, {machine.accelerator})")
    disk = at.folder / "disk.qcow2"
    run(["cp", "--reflink=auto", "--sparse=always", machine.disk, disk], timeout_s=300)
    port = qemu.free_port()
    state = _new_state(name, profile, "qemu", 0, "127.0.0.1", port, machine.host_key, [machine.folder, *layers])
    words = qemu.command(disk, machine.kernel, machine.initrd, at.folder / "qmp", port, machine.accelerator, load=True)
    config = {"command": words, "console": str(at.console), "log": str(at.supervisor_log), "cgroups": [], "late_writes": []}
    at.supervisor_config.write_text(json.dumps(config, indent=2))
    state = _supervise(places, state)
    _wait(places, state, QEMU_TIMEOUT_S)
    state = state.model_copy(update={"host_key": template.adopt(places, name, state)})
    states.write(places, state)
    remote.settle(places, state, QEMU_TIMEOUT_S)
    return state


def _new_state(
    name: str, profile: str, runtime: Runtime, index: int, address: str, port: int, host_key: str, layers: list[Path]
) -> HostState:
    return HostState(
        name=name, profile=profile, runtime=runtime, index=index, address=address, port=port, host_key=host_key,
        machine_boot_id=procfs.boot_id(), supervisor_pid=0, supervisor_start=0,
        layers=tuple(path.name for path in layers),
    )  # fmt: skip


def _supervise(places: Places, state: HostState) -> HostState:
    at = places.host(state.name)
    script = nspawn.SUPERVISOR
    with at.supervisor_log.open("ab") as log:
        child = subprocess.Popen(
            [sys.executable, "-I", str(script), str(at.supervisor_config)],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/",
            env=os.environ | {DETACHED: "1"},
        )  # fmt: skip
    began = procfs.started(child.pid)
    started = state.model_copy(update={"supervisor_pid": child.pid, "supervisor_start": began or 0})
    states.write(places, started)
    return started


def _wait(places: Places, state: HostState, patience_s: float) -> None:
    deadline = time.monotonic() + patience_s
    # An emulated machine takes seconds to greet; asking again sooner would only pile up connections.
    each_s = 20.0 if state.runtime == "qemu" else 1.0
    while not states.answers(state.address, state.port, each_s):
        alive = states.running(state)
        if alive and time.monotonic() < deadline:
            time.sleep(0.05)
            continue
        console = places.host(state.name).console
        tail = console.read_text(errors="replace")[-800:] if console.exists() else ""
        found = "no answer" if alive else "the host ended"
        log = places.host(state.name).supervisor_log
        said = log.read_text(errors="replace")[-800:] if log.exists() else ""
        expected, found = f"ssh within {patience_s:.0f} s", f"{found}: {said} {tail}"
        step = "what its console said last is in `found`; on a busy machine try again"
        raise KitError(failure("sim.boot", f"simulated host {state.name}", expected, found, step), ExitCode.TIMEOUT)


def _declare(places: Places, fresh: str | None) -> None:
    with exclusive(places.sim / "locks" / "fleet.lock"):
        known = states.read_all(places)
        declare.write_fleet(places.fleet, known, places.client_key, fresh)
        replace(places.known_hosts, "".join(f"{state.name} {state.host_key}\n" for state in known).encode())


def names(places: Places) -> list[str]:
    """Every host of which something is there: a folder, a process, a network cable. Whether a state file says so or not."""
    there = {process.host for process in leftovers.processes(places.hosts.resolve())} | network.hosts_in(places.hosts)
    return sorted(there | ({path.name for path in places.hosts.iterdir()} if places.hosts.is_dir() else set()))


def down(places: Places, name: str, progress: Progress) -> Removed | None:
    """Take the host away whole; None when there was none."""
    with exclusive(places.sim / "locks" / f"{name}.lock"):
        if name not in names(places):
            return None
        progress(f"{name}: going down")
        state = states.read(places, name)
        was_running = state is not None and states.running(state)
        _remove(places, name, state)
        _declare(places, None)
    return Removed(name=name, was_running=was_running)


def _remove(places: Places, name: str, state: HostState | None) -> None:
    """Everything of a host, in whatever condition an earlier run, a kill, a reboot or an `rm` of the cache left it."""
    found = [process for process in leftovers.processes(places.hosts.resolve()) if process.host == name]
    indexes = {process.index for process in found} | {network.index_of(places.host(name).folder)}
    if state is not None and state.machine_boot_id == procfs.boot_id() and state.runtime == "nspawn":
        indexes.add(state.index)
    # A supervisor first: it would start its host again, and ends the processes of its host itself.
    for process in sorted(found, key=lambda process: not process.supervisor):
        began = procfs.started(process.pid)
        if process.supervisor and began is not None:
            _end(process.pid, began)
        elif began is not None:
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    for index in sorted(index for index in indexes if index is not None):
        cgroups.remove(cgroups.machine_layout(), cgroups.group_name(index))
        with exclusive(MACHINE_LOCK):
            network.disconnect(index)
    mounts.delete(places.host(name).folder)


def _end(pid: int, started: int, timeout_s: float = 10) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while procfs.started(pid) == started:
        if time.monotonic() > deadline:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
