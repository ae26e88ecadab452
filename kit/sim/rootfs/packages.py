"""Stand-ins for the packages a node holds: real .deb files in a local apt source, so that holds, versions, upgrades are real.

One folder a package under ``debs/``; a package without a folder is empty.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from kit.sim.commands import run

DEBS = Path(__file__).resolve().parent / "debs"
DRIVER = "580.95.05"
NEWER_DRIVER = "580.105.08"


@dataclass(frozen=True)
class Package:
    """One .deb."""

    name: str
    version: str
    depends: str = ""
    installed: bool = True
    """False: only offered by the source, as an upgrade."""
    conffiles: tuple[str, ...] = ()


PACKAGES = (
    Package("containerd", "2.1.4-1"),
    Package("docker.io", "28.2.2-1", "containerd"),
    Package("docker.io", "28.5.1-1", "containerd", installed=False),
    Package("nvidia-container-toolkit", "1.18.0-1"),
    Package("nvidia-driver", f"{DRIVER}-1"),
    Package("nvidia-driver", f"{NEWER_DRIVER}-1", installed=False),
    Package("nvidia-fabricmanager", f"{DRIVER}-1"),
    Package("nvidia-fabricmanager", f"{NEWER_DRIVER}-1", installed=False),
    Package("linux-image-amd64", "6.12.57-1"),
    Package("linux-cpupower", "6.12.57-1"),
    Package("irqbalance", "1.9.2-1", conffiles=("/etc/default/irqbalance",)),
    Package(
        "unattended-upgrades",
        "2.9.1-1",
        conffiles=("/etc/apt/apt.conf.d/20auto-upgrades", "/etc/apt/apt.conf.d/50unattended-upgrades"),
    ),
)
HELD = ("containerd", "docker.io", "linux-image-amd64", "nvidia-container-toolkit", "nvidia-driver", "nvidia-fabricmanager")
"""What a node's spec asks to hold."""
SERVICES = ("containerd", "docker", "nvidia-persistenced", "nvidia-fabricmanager", "irqbalance")


def installed_version(name: str) -> str:
    """The version a fresh host has."""
    return next(p.version for p in PACKAGES if p.name == name and p.installed)


def _control(package: Package) -> str:
    depends = f"Depends: {package.depends}\n" if package.depends else ""
    return (
        f"Package: {package.name}\nVersion: {package.version}\nArchitecture: amd64\nMaintainer: simulated host <root@localhost>\n"
        f"{depends}Section: misc\nPriority: optional\nDescription: simulated stand-in for {package.name}\n"
    )


def _build(package: Package, folder: Path) -> Path:
    tree = folder / "tree"
    if tree.exists():
        shutil.rmtree(tree)
    source = DEBS / package.name
    if source.is_dir():
        shutil.copytree(source, tree, ignore=shutil.ignore_patterns("__pycache__"))
    for path in tree.rglob("*"):
        executable = path.is_file() and os.access(path, os.X_OK)
        path.chmod(0o755 if path.is_dir() or executable else 0o644)
    (tree / "DEBIAN").mkdir(parents=True, exist_ok=True)
    tree.chmod(0o755)
    (tree / "DEBIAN/control").write_text(_control(package))
    if package.conffiles:
        (tree / "DEBIAN/conffiles").write_text("".join(f"{name}\n" for name in package.conffiles))
    deb = folder / f"{package.name}_{package.version}_amd64.deb"
    run(["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", tree, deb])
    shutil.rmtree(tree)
    return deb


def _index_entry(package: Package, deb: Path) -> str:
    data = deb.read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    return f"{_control(package)}Filename: ./{deb.name}\nSize: {len(data)}\nSHA256: {digest}\n"


def build_source(folder: Path) -> list[str]:
    """Fill `folder` with the packages and their index; returns the file names of those a fresh host has installed."""
    folder.mkdir(parents=True, exist_ok=True)
    built = [(package, _build(package, folder)) for package in PACKAGES]
    (folder / "Packages").write_text("\n".join(_index_entry(package, deb) for package, deb in built))
    return [deb.name for package, deb in built if package.installed]
