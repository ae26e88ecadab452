"""Package files: which ones a version means for an image's Python, and getting them into the cache, each by its hash.

Edge: runs pip with this machine's own settings, so that an operator's index and proxies are used.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from kit.errors import ExitCode, Failure, KitError, failure
from kit.image.base import sha256_file
from kit.image.commands import Failed, log, run
from kit.image.model import Wheel
from kit.image.places import Places

_TIMEOUT_S = 3600


def target_options(python: str, glibc: str) -> list[str]:
    """pip's options that choose files for another Python than its own: x86-64 Linux with at most this glibc. Pure."""
    minor = int(glibc.partition(".")[2])
    platforms = [f"manylinux_2_{n}_x86_64" for n in range(minor, 4, -1)]
    platforms += ["manylinux2014_x86_64", "manylinux2010_x86_64", "manylinux1_x86_64", "linux_x86_64"]
    abi = f"cp{python.replace('.', '')}"
    fits = [word for platform in platforms for word in ("--platform", platform)]
    return ["--implementation", "cp", "--python-version", python, "--abi", abi, *fits]


def resolve(places: Places, wanted: Mapping[str, str], python: str, glibc: str) -> dict[str, Wheel]:
    """The file of each exact version and its hash, as the index tells them; nothing large is fetched.

    Raises KitError(UNREACHABLE, ``image.wheels``) with pip's words when one cannot be had.
    """
    if not wanted:
        return {}
    log.info("asking for %d Python packages", len(wanted))
    with tempfile.TemporaryDirectory() as scratch:
        listed, report = Path(scratch) / "wanted.txt", Path(scratch) / "report.json"
        listed.write_text("".join(f"{name}=={version}\n" for name, version in wanted.items()))
        command = [sys.executable, str(_new_pip(places)), "install", "--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
        command += ["--quiet", "--no-input", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:"]
        command += target_options(python, glibc)
        command += ["--target", f"{scratch}/none", "--report", str(report), "-r", str(listed)]
        try:
            run(command, "image.wheels", _TIMEOUT_S, exit_code=ExitCode.UNREACHABLE)
        except Failed as error:
            raise _explained(error) from error
        found = _reported(json.loads(report.read_text()))
    missing = [name for name, version in wanted.items() if name not in found or found[name].version != version]
    if missing:
        told = failure("image.wheels", ", ".join(missing), "a wheel and its hash", "none", "correct the requirements")
        raise KitError(told, ExitCode.UNREACHABLE)
    return found


def _reported(report: Mapping[str, Any]) -> dict[str, Wheel]:
    out: dict[str, Wheel] = {}
    for item in report["install"]:
        file = unquote(urlsplit(item["download_info"]["url"]).path.rpartition("/")[2])
        sha256 = item["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256")
        name = canonicalize_name(item["metadata"]["name"])
        if sha256 is not None and file.endswith(".whl"):
            out[name] = Wheel(version=item["metadata"]["version"], file=file, sha256=sha256)
    return out


def _new_pip(places: Places) -> Path:
    """A pip that can tell hashes without fetching whole files; that of a system may be too old. It runs from its own file."""
    kept = sorted(places.wheels.glob("pip-*.whl"), key=lambda path: Version(parse_wheel_filename(path.name)[1].public))
    if not kept:
        places.wheels.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
        run([*command, "-d", str(places.wheels), "pip"], "image.wheels", _TIMEOUT_S, exit_code=ExitCode.UNREACHABLE)
        kept = sorted(places.wheels.glob("pip-*.whl"))
    return kept[-1] / "pip"


def fetch(places: Places, wheels: Mapping[str, Wheel], python: str, glibc: str) -> dict[str, Path]:
    """Every locked file in the cache, its hash checked now; what is missing is fetched.

    Raises KitError(APPLY_FAILED, ``image.wheel_changed``) when an index now gives other bytes under the same name, and
    (UNREACHABLE, ``image.wheels``) when one cannot be had.
    """
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        good = list(pool.map(lambda wheel: _good(places.wheels / wheel.file, wheel.sha256), wheels.values()))
    missing = {name: wheel for (name, wheel), right in zip(wheels.items(), good, strict=True) if not right}
    if missing:
        log.info("fetching %d Python packages", len(missing))
        places.wheels.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=places.wheels) as scratch:
            lines = [f"{name}=={wheel.version} --hash=sha256:{wheel.sha256}" for name, wheel in missing.items()]
            _download(Path(scratch), lines, python, glibc, True)
            for path in Path(scratch).glob("*.whl"):
                path.replace(places.wheels / path.name)
    bad: list[Failure] = [
        failure("image.wheel_changed", wheel.file, wheel.sha256, "another file", "do not trust it; ask who published it")
        for wheel in missing.values()
        if not _good(places.wheels / wheel.file, wheel.sha256)
    ]
    if bad:
        raise KitError(bad, ExitCode.APPLY_FAILED)
    return {name: places.wheels / wheel.file for name, wheel in wheels.items()}


def _good(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    if sha256_file(path) == sha256:
        return True
    log.warning("%s in the cache is not the locked file, and is fetched again", path.name)
    return False


def _download(folder: Path, lines: Iterable[str], python: str, glibc: str, hashes: bool) -> None:
    wanted = folder / "wanted.txt"
    wanted.write_text("".join(f"{line}\n" for line in lines))
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps"]
    command += ["--only-binary", ":all:", *target_options(python, glibc), "-d", str(folder), "-r", str(wanted)]
    try:
        run([*command, *(["--require-hashes"] if hashes else [])], "image.wheels", _TIMEOUT_S, exit_code=ExitCode.UNREACHABLE)
    except Failed as error:
        raise _explained(error) from error


def _explained(error: Failed) -> KitError:
    if "DO NOT MATCH THE HASHES" in error.err:
        named = error.err.partition("DO NOT MATCH THE HASHES")[2]
        found = " ".join(named.split())[:600]
        step = "do not trust it: ask who published it"
        told = failure("image.wheel_changed", "the package index", "the locked hash", found, step)
        return KitError(told, ExitCode.APPLY_FAILED)
    lines = [line.removeprefix("ERROR: ") for line in error.err.splitlines() if line.startswith("ERROR: ")]
    step = "look at pip's settings (index, proxy)"
    if any("+cpu" in line for line in lines):
        step = "PyPI has only the CUDA build of torch for x86-64: add a place that has the CPU build to pip's find-links"
    found = " ".join(lines)[-600:] or error.failures[0].found
    return KitError(failure("image.wheels", "pip download", "every package", found, step), ExitCode.UNREACHABLE)
