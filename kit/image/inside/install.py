"""Installs package files into the image's environment, from the build context alone: no index is asked, no file goes unchecked.

    packages PREFIX   a virtual environment with everything that requirements.txt names, each file by its hash
    own PREFIX        builds the projects below own/, and unpacks the wheels there, into /b300kit/installed

Byte code is made here, once: its usual form holds times, and the engine's user could not write it later.
"""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path("/b300kit")
INSTALLED = HERE / "installed"
OPTIONS = ["--no-index", "--no-deps", "--no-compile", "--no-cache-dir", "--disable-pip-version-check", "--no-input", "--quiet"]


def run(*command: str | Path, **environment: str) -> None:
    """A command of the build; its words go to the build's output."""
    plain = {"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "PIP_CONFIG_FILE": os.devnull, "HOME": "/nonexistent"}
    plain |= {"SOURCE_DATE_EPOCH": os.environ.get("SOURCE_DATE_EPOCH", "1767225600"), "LC_ALL": "C.UTF-8"}
    done = subprocess.run([str(word) for word in command], env=plain | environment, check=False)
    if done.returncode != 0:
        sys.exit(f"install.py: exit {done.returncode} of {' '.join(str(word) for word in command[:6])}")


def pip(python: Path, folder: Path) -> list[str | Path]:
    """pip, run from its own package file: it is never installed."""
    (wheel,) = folder.glob("pip-*.whl")
    return [python, wheel / "pip"]


def compile_all(folder: Path) -> None:
    """Byte code that holds a hash and no time. One process a package: what one holds must not depend on its neighbours."""
    parts = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.endswith(".dist-info"))
    flags = ["-q", "--invalidation-mode", "unchecked-hash"]

    def one(path: Path) -> None:
        # Some packages carry files for other Python versions; those do not compile, and are never imported.
        subprocess.run(
            [sys.executable, "-I", "-X", "utf8", "-m", "compileall", *flags, "-s", str(folder), "-p", str(folder), str(path)],
            env={"PATH": os.environ["PATH"], "PYTHONHASHSEED": "0"},
            stdout=subprocess.DEVNULL,
            check=False,
        )

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(one, parts))
    single = sorted(str(path) for path in folder.glob("*.py"))
    if single:
        subprocess.run([sys.executable, "-I", "-m", "compileall", *flags, *single], stdout=subprocess.DEVNULL, check=False)


def packages(prefix: Path) -> None:
    """The environment with every locked package."""
    run(sys.executable, "-m", "venv", "--without-pip", prefix)
    wheels = HERE / "wheels"
    python = prefix / "bin" / "python"
    run(*pip(python, wheels), "install", *OPTIONS, "--require-hashes", "--find-links", wheels, "-r", HERE / "requirements.txt")
    compile_all(site_packages(prefix))


def own(prefix: Path) -> None:
    """This image's own parts: projects are built, wheels are taken as they are."""
    tools = HERE / "tools"
    scratch = HERE / "scratch"
    run(sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", scratch)
    python = scratch / "bin" / "python"
    run(*pip(python, tools), "install", *OPTIONS, "--find-links", tools, "-r", tools / "requirements.txt")
    # The build may import what the engine has (torch, for a plugin with compiled code).
    (site_packages(scratch) / "engine.pth").write_text(f"{site_packages(prefix)}\n")
    built = HERE / "built"
    for project in sorted(path for path in (HERE / "own").iterdir() if path.is_dir()):
        offline = [option for option in OPTIONS if option != "--no-compile"]
        run(*pip(python, tools), "wheel", *offline, "--no-build-isolation", "-w", built, project)
    wheels = sorted([*built.glob("*.whl"), *(HERE / "own").glob("*.whl")])
    run(*pip(python, tools), "install", *OPTIONS, "--target", INSTALLED, *wheels)
    compile_all(INSTALLED)


def site_packages(prefix: Path) -> Path:
    """Of a virtual environment."""
    return prefix / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"


if __name__ == "__main__":
    os.umask(0o022)
    {"packages": packages, "own": own}[sys.argv[1]](Path(sys.argv[2]))
