"""``probe --measure-cores``: builds the C program here, runs it on the host, keeps what it found for this boot.

Edge: a C compiler, ssh, the cache.
"""

from __future__ import annotations

import base64
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
import zlib
from pathlib import Path

from kit.apply.ssh import Remote
from kit.errors import ExitCode, KitError, failure
from kit.facts.collect import run_script
from kit.facts.measured_cache import store
from kit.facts.model import Facts, MeasuredCores
from kit.facts.probe import cores_script
from kit.facts.request import encoded
from kit.facts.unknown import is_known
from kit.paths import cache_dir
from kit.spec.target import Target

SOURCE = Path(__file__).with_name("cores_probe.c")
FLAGS = ("-O2", "-static", "-pthread")
_BASE_S = 15.0
_PER_CORE_S = 0.2
_LONGEST_S = 180.0


def measure_cores(target: Target, facts: Facts, remote: Remote) -> MeasuredCores:
    """Measure every physical core alone and under full load, and cache the result by boot id.

    Raises KitError(REFUSED) with measure.joined when the host says that it serves or cannot tell, or measure.rebooted when
    it restarted since ``facts`` were read; otherwise as :func:`kit.facts.collect.run_script` does.
    """
    cores = len({cpu.siblings if is_known(cpu.siblings) else (cpu.cpu,) for cpu in facts.cpu.logical})
    budget_s = min(_LONGEST_S, _BASE_S + _PER_CORE_S * cores)
    # Python's own measure counts a little longer than the C program; ssh gets the double.
    answer = run_script(remote, cores_script(program()), encoded({"budget_s": budget_s}), 2 * budget_s + 30)
    if "refused" in answer:
        step = f"invoke leave --host {target.name}"
        raise KitError(
            failure("measure.joined", target.name, "a host that serves nobody", answer["refused"], step), ExitCode.REFUSED
        )
    measured = MeasuredCores.model_validate(answer["measured"])
    if measured.boot_id != facts.host.boot_id:
        raise KitError(
            failure("measure.rebooted", target.name, f"boot {facts.host.boot_id}", measured.boot_id, "probe again"),
            ExitCode.REFUSED,
        )
    store(target.name, measured, tuple(answer["notes"]))
    return measured


def program() -> dict[str, str] | None:
    """The C program for this machine's kind of processor, ``{"machine", "data"}``; None without a working compiler."""
    binary = build()
    if binary is None:
        return None
    data = base64.b64encode(zlib.compress(binary.read_bytes(), 9)).decode()
    return {"machine": platform.machine(), "data": data}


def build() -> Path | None:
    """The compiled program in the cache, built once for each version of its source; None when that is not possible here."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    digest = hashlib.sha256(SOURCE.read_bytes() + " ".join((compiler, *FLAGS)).encode()).hexdigest()[:16]
    path = cache_dir() / "build" / f"cores_probe-{platform.machine()}-{digest}"
    if path.exists():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, scratch = tempfile.mkstemp(dir=path.parent, prefix=".cores_probe")
    except OSError:
        return None
    os.close(handle)
    try:
        subprocess.run(
            [compiler, *FLAGS, "-o", scratch, str(SOURCE)], check=True, capture_output=True, timeout=120, stdin=subprocess.DEVNULL
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
        Path(scratch).unlink(missing_ok=True)
        return None
    Path(scratch).replace(path)
    return path
