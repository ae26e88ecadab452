"""Sources that an image is built from: the plugin (a folder, or git by commit), its patched copy, this project's own parts."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from pathlib import Path

from kit import paths
from kit.errors import ExitCode, KitError, failure
from kit.image.commands import run
from kit.image.model import Commit, ImageLock, ImageSpec, PluginFolder
from kit.image.places import Places
from kit.patch.check import apply_series
from kit.patch.load import find_series, load_series
from kit.patch.report import PatchReport
from kit.patch.tree import Tree, tree_sha256
from kit.slots.derive import derive
from kit.slots.load import load_declared
from kit.slots.model import Slots

KERNELS = "kernels"


def sha256_tree(folder: Path) -> str:
    """Of a source tree's files and links; hidden folders and byte code are no part of it."""
    tree = Tree(folder)
    return tree_sha256(tree.hashes(with_edits=False), tree.links)


def series_folder(spec: ImageSpec) -> Path:
    """Of the plugin's patches."""
    return find_series(paths.ROOT / "patches", spec.plugin.series)


def series_sha256(spec: ImageSpec) -> str:
    """Of the whole series, whatever the route. Raises KitError(USAGE) for a series that is not written right."""
    return load_series(series_folder(spec), route=spec.plugin.route).sha256


def local_source(folder: Path, spec: ImageSpec) -> Path | None:
    """The plugin's source when it is a folder of this checkout."""
    source = spec.plugin.source
    return folder / source.folder if isinstance(source, PluginFolder) else None


def resolve_commit(spec: ImageSpec) -> Commit | None:
    """The commit that the wanted ref has now; None for a folder. Raises KitError(UNREACHABLE) when git cannot be asked."""
    source = spec.plugin.source
    if isinstance(source, PluginFolder):
        return None
    text = run(["git", "ls-remote", "--exit-code", source.git, source.ref], "image.git", 60, exit_code=ExitCode.UNREACHABLE)
    return text.split()[0]


def plugin_source(places: Places, folder: Path, spec: ImageSpec, commit: Commit | None) -> Path:
    """The plugin's source as it is upstream. Raises KitError(UNREACHABLE, ``image.git``)."""
    local = local_source(folder, spec)
    source = spec.plugin.source
    if local is not None or isinstance(source, PluginFolder):
        return local or folder
    target = places.sources / f"git-{commit}"
    if target.is_dir() or commit is None:
        return target
    places.sources.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=places.sources) as scratch:
        work = Path(scratch) / "tree"
        for words in (
            ["git", "init", "--quiet", str(work)],
            ["git", "-C", str(work), "fetch", "--quiet", "--depth", "1", source.git, commit],
            ["git", "-C", str(work), "checkout", "--quiet", "--detach", commit],
        ):
            run(words, "image.git", 600, exit_code=ExitCode.UNREACHABLE)
        work.rename(target)
    return target


def locked_plugin(places: Places, folder: Path, spec: ImageSpec, lock: ImageLock) -> Path:
    """The plugin's source, proved to be the locked one. Raises KitError(APPLY_FAILED, ``image.plugin_moved``)."""
    source = plugin_source(places, folder, spec, lock.plugin.commit)
    found = sha256_tree(source)
    if found != lock.plugin.tree_sha256:
        step = "invoke image.lock, after you looked at what changed"
        raise KitError(failure("image.plugin_moved", str(source), lock.plugin.tree_sha256, found, step), ExitCode.APPLY_FAILED)
    return source


def derive_slots(spec: ImageSpec, source: Path) -> Slots:
    """The plugin's default slots. Raises KitError(GATE_FAILED) with every reason why they cannot be told."""
    found = derive(Tree(source), load_declared(series_folder(spec)))
    if isinstance(found, Slots):
        return found
    raise KitError(list(found), ExitCode.GATE_FAILED)


def patched(places: Places, spec: ImageSpec, lock: ImageLock, source: Path) -> tuple[Path, PatchReport]:
    """A patched copy of the plugin, whole or not at all. Raises as :func:`kit.patch.check.apply_series` does.

    What only the finished image can show (the plugin needs torch) is asked there, by the checker.
    """
    place = f"{lock.plugin.tree_sha256}-{lock.plugin.series_sha256}-{spec.plugin.route}"
    target = places.sources / f"patched-{hashlib.sha256(place.encode()).hexdigest()[:24]}"
    report = apply_series(
        source, series_folder(spec), target, expected_sha256=lock.plugin.series_sha256, proven=False, route=spec.plugin.route
    )
    return target, report


def kernels_version() -> str:
    """Of this project's kernel wheel. Its content is this checkout's: the manifest of each image holds its hashes."""
    script = f"from {KERNELS}.wheel import VERSION; print(VERSION)"
    return run([sys.executable, "-c", script], "image.kernels", 60, cwd=paths.ROOT).strip()


def kernels_wheel(out: Path, architectures: tuple[str, ...]) -> Path:
    """This project's kernels as a wheel; without architectures it holds operators and references, no compiled code."""
    words = [sys.executable, "-m", f"{KERNELS}.wheel", "--out", str(out)]
    words += ["--arch", ",".join(architectures)] if architectures else []
    text = run(words, "image.kernels", 3600, cwd=paths.ROOT)
    return Path(text.strip().splitlines()[-1])


def copy_tree(source: Path, target: Path) -> None:
    """A source tree for a build: the same bytes, and modes that do not depend on this machine's umask."""
    tree = Tree(source)
    for path, status in tree.files.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / path, place)
        place.chmod(0o755 if status.st_mode & 0o100 else 0o644)
    for path, link in tree.links.items():
        place = target / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(link)
    for place in [target, *(p for p in target.rglob("*") if p.is_dir() and not p.is_symlink())]:
        place.chmod(0o755)
