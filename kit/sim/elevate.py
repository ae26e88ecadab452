"""Run the engine as root: here when we are, else in a child started through sudo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kit.errors import ExitCode, Failure, KitError, failure
from kit.paths import ROOT
from kit.sim import engine, requirements
from kit.sim.model import Progress, Removed, Runtime, SimHost
from kit.sim.places import Places
from kit.sim.rootfs import layer
from kit.spec.model import Name


def _check_name(name: str) -> None:
    try:
        TypeAdapter(Name).validate_python(name)
    except ValidationError as error:
        raise KitError(
            failure("sim.name", "--name", "lower-case letters, digits and hyphens", repr(name), "choose such a name"),
            ExitCode.USAGE,
        ) from error


def up(places: Places, name: str, profile: str, runtime: Runtime, progress: Progress) -> SimHost:
    """See :func:`kit.sim.flow.up`."""
    _check_name(name)
    requirements.check(runtime)
    if os.geteuid() == 0:
        host = engine.up(places, name, profile, runtime, progress)
        _give_back(places)
        return host
    return SimHost.model_validate(_as_root(places, ["up", name, profile, runtime], progress))


def down(places: Places, name: str | None, progress: Progress) -> list[Removed]:
    """See :func:`kit.sim.flow.down`."""
    if name is not None:
        _check_name(name)
    if os.geteuid() == 0:
        found = [engine.down(places, each, progress) for each in ([name] if name is not None else engine.names(places))]
        removed = [gone for gone in found if gone is not None]
        if name is None:
            layer.sweep(places)
        _give_back(places)
        return removed
    words = ["down", *([name] if name is not None else [])]
    return TypeAdapter(list[Removed]).validate_python(_as_root(places, words, progress))


def _give_back(places: Places) -> None:
    """What the person behind sudo must read or change belongs to them, not to root."""
    if "SUDO_UID" not in os.environ:
        return
    uid, gid = int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"])
    mine = [places.cache, places.sim, places.client_key, places.client_key.with_suffix(".pub"), places.known_hosts, places.fleet]
    mine += places.fleet.rglob("*") if places.fleet.is_dir() else []
    for path in mine:
        if path.exists():
            os.chown(path, uid, gid)


def _as_root(places: Places, words: list[str], progress: Progress) -> Any:
    python_path = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    command = [
        "sudo", *([] if sys.stdin.isatty() else ["-n"]), "--", "env", f"B300KIT_CACHE={places.cache}",
        f"PYTHONPATH={python_path}", "PYTHONDONTWRITEBYTECODE=1",  # no files of root in the person's checkout
        sys.executable, "-m", "kit.sim.elevate", *words,
    ]  # fmt: skip
    result: Any = None
    try:
        started = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    except OSError as error:
        raise _no_root(f"sudo does not start: {error.strerror or error}", "install sudo, or run as root") from error
    with started as child:
        assert child.stdout is not None
        for line in child.stdout:
            message = json.loads(line)
            if "progress" in message:
                progress(message["progress"])
            else:
                result = message
    if result is None:
        raise _no_root(f"sudo ended with {child.returncode}", "allow sudo for this user, or run as root")
    if "failures" in result:
        raise KitError([Failure.model_validate(f) for f in result["failures"]], ExitCode(result["exit_code"]))
    return result["result"]


def _no_root(found: str, step: str) -> KitError:
    expected = "root for namespaces, mounts and control groups"
    return KitError(failure("sim.sudo", "sudo on this machine", expected, found, step), ExitCode.USAGE)


def _emit(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def main(words: list[str]) -> None:
    """Entry point of the child that runs as root; speaks one JSON object a line on standard output."""
    os.umask(0o022)
    places = Places(Path(os.environ["B300KIT_CACHE"]))

    def progress(line: str) -> None:
        _emit({"progress": line})

    try:
        if words[0] == "up":
            result: Any = up(places, words[1], words[2], TypeAdapter(Runtime).validate_python(words[3]), progress).model_dump()
        else:
            result = [gone.model_dump() for gone in down(places, words[1] if len(words) > 1 else None, progress)]
    except KitError as error:
        _emit({"failures": [f.model_dump() for f in error.failures], "exit_code": int(error.exit_code)})
    else:
        _emit({"result": result})


if __name__ == "__main__":
    main(sys.argv[1:])
