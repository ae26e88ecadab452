"""Docker: installed, configured, and running with that configuration."""

from __future__ import annotations

import json
from typing import Any

from kit.facts.model import Facts, HostFile
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import render
from kit.plan.areas import cdi
from kit.plan.model import Action, ManagedFile, Step
from kit.plan.steps import blocked, change, file_step, installed, keep, refuse
from kit.plan.where import DAEMON_JSON, DOCKER_DROP_IN, DOCKER_LOADED, DOCKER_UNIT
from kit.spec.model import HostSpec, Lock

ROLE = "container_engine"
RELOADABLE = frozenset({"live-restore", "features"})
"""Of the keys this kit sets, those that dockerd takes over on a reload; the others need a restart."""


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Package, files, service, the daemon as it runs, CDI."""
    package = _package(spec, facts)
    fresh = package.action is Action.CHANGE
    daemon_file = _daemon_file(spec, facts)
    drop_in = _drop_in(spec, facts)
    service = _service(facts, fresh, drop_in)
    return [
        package,
        daemon_file,
        drop_in,
        service,
        _limits(spec, facts, service.action is Action.CHANGE),
        _daemon(spec, facts, fresh, service.action is Action.CHANGE),
        *cdi.steps(spec, facts),
    ]


def _package(spec: HostSpec, facts: Facts) -> Step:
    name = spec.docker.package
    absent = f"{name} is not installed; it comes from the host's own apt source"
    look = "look at `dpkg -s` on the host"
    return installed("docker.package", name, facts, ROLE, absent=absent, look=look, disruptive=True)


def wanted_settings(spec: HostSpec) -> dict[str, Any]:
    """The keys of daemon.json that this kit sets."""
    want = spec.docker
    settings: dict[str, Any] = {
        "live-restore": want.live_restore,
        "data-root": want.data_root,
        "log-driver": "json-file",
        "log-opts": {"max-size": f"{want.log_max_size_mib}m", "max-file": str(want.log_max_files)},
        # A container inherits the limits of containerd's shim, not of dockerd, unless the daemon names them.
        "default-ulimits": {"memlock": _ulimit("memlock", _memlock_bytes(spec)), "nofile": _ulimit("nofile", spec.memory.nofile)},
    }
    if want.cdi:
        settings["features"] = {"cdi": True}
    return settings


def _memlock_bytes(spec: HostSpec) -> int:
    """-1 is unlimited."""
    kib = spec.memory.memlock_kib
    return -1 if kib == "unlimited" else kib * 1024


def _ulimit(name: str, value: int) -> dict[str, Any]:
    return {"Name": name, "Hard": value, "Soft": value}


def merged(current: dict[str, Any], wanted: dict[str, Any]) -> dict[str, Any]:
    """An operator's other keys stay, one level deep too (``features``); ``log-opts`` belongs to this kit as a whole."""
    result = {**current, **wanted}
    if isinstance(current.get("features"), dict) and "features" in wanted:
        result["features"] = {**current["features"], **wanted["features"]}
    return result


def _settings(file: HostFile | None) -> dict[str, Any] | Unknown:
    """The JSON object in a file; Unknown when it is not there, not readable, or not an object."""
    if file is None:
        return Unknown(unknown="not read")
    if not file.exists:
        return Unknown(unknown="absent")
    if not is_known(file.content):
        return file.content
    try:
        value = json.loads(file.content or "{}")
    except ValueError as error:
        return Unknown(unknown=f"not JSON: {error}")
    return value if isinstance(value, dict) else Unknown(unknown="not a JSON object")


def _daemon_file(spec: HostSpec, facts: Facts) -> Step:
    file = facts.files.get(DAEMON_JSON)
    current = _settings(file)
    if not is_known(current) and current.unknown != "absent":
        return refuse(
            "docker.daemon_file",
            f"{DAEMON_JSON}: {current.unknown}",
            expected="a JSON object",
            found=current,
            next="mend the file by hand: what is in it is merged, not overwritten",
        )
    base = current if is_known(current) else {}
    settings = merged(base, wanted_settings(spec))
    if settings == base and file is not None and is_known(file.content):
        # Same meaning, other layout: an operator's own formatting is left alone.
        wanted = ManagedFile(path=DAEMON_JSON, content=file.content)
    else:
        wanted = render.settings(DAEMON_JSON, settings)
    return file_step("docker.daemon_file", wanted, facts, ROLE, why="settings of the docker daemon, merged with what was there")


def _drop_in(spec: HostSpec, facts: Facts) -> Step:
    memlock = "infinity" if spec.memory.memlock_kib == "unlimited" else str(_memlock_bytes(spec))
    file = render.file(
        DOCKER_DROP_IN,
        "docker.service.d.j2",
        memlock=memlock,
        nofile=spec.memory.nofile,
        daemon_json=DAEMON_JSON,
        loaded=DOCKER_LOADED,
    )
    why = "limits of the daemon, and a copy of the settings it started with"
    return file_step("docker.drop_in", file, facts, ROLE, why=why, disruptive=True)


def _service(facts: Facts, fresh: bool, drop_in: Step) -> Step:
    id, expected = "docker.service", "active, enabled, with the drop-in"
    if (refusal := blocked(id, DOCKER_UNIT, facts, expected=expected, fresh=fresh)) is not None:
        return refusal
    now, arguments = facts.services[DOCKER_UNIT], {"units_restart": [DOCKER_UNIT]}
    found = f"{show(now.active)}, {show(now.enabled)}"
    if fresh or drop_in.action is Action.CHANGE:
        why = "it is installed by this plan" if fresh else "its drop-in changes"
        return change(
            id, f"{DOCKER_UNIT} starts again: {why}", ROLE, expected=expected, found=found, disruptive=True, arguments=arguments
        )
    stale = is_known(now.needs_daemon_reload) and now.needs_daemon_reload
    up = is_known(now.active) and now.active == "active" and is_known(now.enabled) and now.enabled == "enabled"
    if up and not stale:
        return keep(id, f"{DOCKER_UNIT} is active and enabled", expected=expected, found=found)
    why = "its drop-in was written but not taken over" if stale else f"it is {found}"
    return change(
        id, f"{DOCKER_UNIT} starts again: {why}", ROLE, expected=expected, found=found, disruptive=True, arguments=arguments
    )


def _limits(spec: HostSpec, facts: Facts, restarts: bool) -> Step:
    """As the live daemon has them: a unit's text proves nothing (a container silently caps what it asks for)."""
    id, want, now = "docker.limits", spec.memory, facts.limits
    lock = -1 if want.memlock_kib == "unlimited" else want.memlock_kib
    expected = f"memlock {want.memlock_kib} KiB, nofile {want.nofile}"
    if restarts:
        return change(
            id,
            "the daemon gets its limits when it starts again",
            ROLE,
            expected=expected,
            found="before the start",
            disruptive=True,
        )
    if now.process != DOCKER_UNIT or not is_known(now.memlock_kib) or not is_known(now.nofile):
        found = f"of {now.process}: memlock {show(now.memlock_kib)}, nofile {show(now.nofile)}"
        return refuse(
            id,
            "the daemon's limits could not be read",
            expected=expected,
            found=found,
            next=f"look at /proc/PID/limits of {DOCKER_UNIT}",
        )
    found = f"memlock {'unlimited' if now.memlock_kib == -1 else now.memlock_kib} KiB, nofile {now.nofile}"
    enough = (now.memlock_kib == -1 or (lock != -1 and now.memlock_kib >= lock)) and (
        now.nofile == -1 or now.nofile >= want.nofile
    )
    if enough:
        return keep(id, "the running daemon has at least the declared limits", expected=expected, found=found)
    restart = {"units_restart": [DOCKER_UNIT]}
    return change(
        id,
        f"the running daemon has lower limits ({found})",
        ROLE,
        expected=expected,
        found=found,
        disruptive=True,
        arguments=restart,
    )


def _daemon(spec: HostSpec, facts: Facts, fresh: bool, restarts: bool) -> Step:
    """The daemon as it runs: `docker info`, and for what that does not tell, the copy made when it started."""
    id = "docker.daemon"
    want, now = wanted_settings(spec), facts.docker
    expected = f"live-restore {want['live-restore']}, json-file {want['log-opts']}, data-root {want['data-root']}"
    if fresh or restarts:
        return change(
            id,
            "the daemon reads its settings when it starts again",
            ROLE,
            expected=expected,
            found="before the start",
            disruptive=True,
        )
    started = _settings(facts.files.get(DOCKER_LOADED))
    live, driver, root = now.live_restore, now.log_driver, now.data_root
    if not is_known(live) or not is_known(driver) or not is_known(root):
        why = show(next(f for f in (live, driver, root) if not is_known(f)))
        return refuse(
            id, f"the docker daemon's settings are {why}", expected=expected, found=why, next="`docker info` on the host, as root"
        )
    found = f"live-restore {live}, {driver} {started.get('log-opts') if is_known(started) else show(started)}, data-root {root}"
    needs_restart = (
        driver != want["log-driver"]
        or root != want["data-root"]
        or not is_known(started)
        or any(started.get(key) != value for key, value in want.items() if key not in RELOADABLE)
    )
    if needs_restart:
        return change(
            id,
            f"the daemon runs with other settings ({found})",
            ROLE,
            expected=expected,
            found=found,
            disruptive=True,
            arguments={"units_restart": [DOCKER_UNIT]},
        )
    if live != want["live-restore"] or not _features_loaded(spec, facts, started if is_known(started) else {}):
        return change(
            id,
            f"the daemon has not taken over its file yet ({found}); a reload is enough",
            ROLE,
            expected=expected,
            found=found,
            arguments={"units_reload": [DOCKER_UNIT]},
        )
    return keep(id, "the daemon runs with the declared settings", expected=expected, found=found)


def _features_loaded(spec: HostSpec, facts: Facts, started: dict[str, Any]) -> bool:
    """CDI on in what the daemon started with, or shown by a daemon that lists CDI devices (docker 28.2 and later)."""
    if not spec.docker.cdi:
        return True
    listed = facts.docker.cdi_devices
    features = started.get("features")
    return (is_known(listed) and bool(listed)) or (isinstance(features, dict) and features.get("cdi") is True)
