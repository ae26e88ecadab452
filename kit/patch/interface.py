"""Would SGLang call this plugin at all? Interface versions and entry points, read from installed files; nothing is imported.

SGLang refuses a plugin of another interface version only in a log line, then serves at the old speed: so it must fail the build.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

import libcst as cst
from pydantic import BaseModel, ConfigDict

from kit.errors import Failure, failure
from kit.patch.bindings import Module
from kit.patch.engine import VERSION_ARGUMENT, VERSION_CONSTANT
from kit.patch.entry import GROUP, NAME
from kit.patch.follow import Place, Stuck
from kit.patch.package import Package, Unparsable
from kit.patch.python_edits import PythonEdits
from kit.patch.tree import Tree

CONTRACT_FOLDER = "sglang/kernels/plugin_kernels"
CONTRACT_FILE = f"{CONTRACT_FOLDER}/nvidia/spec.py"
VERSION_POSITION = 6
_SILENT = "SGLang would log it, start, and serve at the old speed"


class Interface(BaseModel):
    """What the installed files say."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sglang: int | None
    """MEGAKERNEL_API_VERSION of the installed SGLang; None when it cannot be told."""
    plugin: tuple[int, ...]
    """``api_version`` of each MegakernelSpec of the plugin."""
    entry_points: tuple[str, ...]
    """``distribution: module:function`` of each ``nvidia_megakernel``."""
    failures: tuple[Failure, ...]

    @property
    def agrees(self) -> bool:
        """Whether SGLang will call the plugin."""
        return not self.failures


@dataclass(frozen=True)
class _Entry:
    distribution: str
    name: str
    target: str


def check_interface(site_packages: Sequence[Path], allowed: str | None) -> Interface:
    """Compare the plugin and the SGLang that are installed below these folders.

    ``allowed`` is the value that SGLANG_PLUGINS will have; None or empty admits every plugin.
    """
    found = [entry for folder in site_packages for entry in _entry_points(folder)]
    ours = [entry for entry in found if entry.name == NAME]
    failures = [*_declared_once(ours, site_packages), *_allowed(allowed)]
    sglang, problem = sglang_version(site_packages)
    failures += [problem] if problem is not None else []
    versions: tuple[int, ...] = ()
    if len(ours) == 1:
        versions, problems = plugin_versions(site_packages, ours[0].target)
        failures += problems
    for version in sorted(set(versions)):
        if sglang is not None and version != sglang:
            failures.append(
                failure(
                    "interface.mismatch",
                    ours[0].target,
                    f"interface version {sglang}, as the installed SGLang speaks",
                    f"version {version}; {_SILENT}",
                    "pin a plugin and an SGLang that speak one version",
                )
            )
    failures += _clashes(site_packages, [entry for entry in found if not _allowed(allowed, entry.name)])
    shown = tuple(f"{entry.distribution}: {entry.target}" for entry in ours)
    return Interface(sglang=sglang, plugin=versions, entry_points=shown, failures=tuple(failures))


def _entry_points(folder: Path) -> list[_Entry]:
    out = []
    for distribution in distributions(path=[str(folder)]):
        for entry in distribution.entry_points:
            if entry.group == GROUP:
                out.append(_Entry(_name(distribution), entry.name, entry.value))
    return out


def _name(distribution: Distribution) -> str:
    return f"{distribution.metadata['Name']} {distribution.version}"


def _declared_once(ours: list[_Entry], folders: Sequence[Path]) -> list[Failure]:
    where = f"entry points below {', '.join(map(str, folders))}"
    if not ours:
        return [failure("interface.entry_missing", where, f"{NAME} in {GROUP}", "none", "install the plugin")]
    if len(ours) > 1:
        names = ", ".join(entry.distribution for entry in ours)
        return [failure("interface.entry_twice", where, f"{NAME} once", f"{len(ours)} times: {names}", "uninstall all but one")]
    return []


def _allowed(allowed: str | None, name: str = NAME) -> list[Failure]:
    names = {part.strip() for part in (allowed or "").split(",") if part.strip()}
    if allowed and name not in names:
        next_step = f"add {name} to SGLANG_PLUGINS or leave it unset"
        return [failure("interface.not_allowed", "SGLANG_PLUGINS", f"{name} in it", f"{allowed!r}; {_SILENT}", next_step)]
    return []


def sglang_version(site_packages: Sequence[Path]) -> tuple[int | None, Failure | None]:
    """MEGAKERNEL_API_VERSION of the installed SGLang, or why it cannot be told."""
    folder = next((f for f in site_packages if (f / CONTRACT_FILE).is_file()), None)
    if folder is None:
        where = ", ".join(str(f / CONTRACT_FILE) for f in site_packages)
        return None, failure("interface.sglang_missing", where, "SGLang's plugin contract", "no such file", "install SGLang")
    where = f"{folder / CONTRACT_FILE} {VERSION_CONSTANT}"
    package = Package(Tree(folder, only=(CONTRACT_FOLDER,)))
    try:
        module = package.module(CONTRACT_FILE)
    except Unparsable as error:
        return None, failure("interface.sglang_unreadable", where, "Python", str(error), "reinstall SGLang")
    if VERSION_CONSTANT not in module.scope.bindings:
        return None, failure("interface.sglang_no_version", where, "a constant", "not defined", "check the SGLang version")
    found = PythonEdits(package).values.of(Place(cst.Name(VERSION_CONSTANT), module.scope))
    if isinstance(found, Stuck):
        return None, failure("interface.sglang_not_constant", where, "a constant", found.reason, "read it by hand")
    return found.value, None


def plugin_versions(site_packages: Sequence[Path], target: str) -> tuple[tuple[int, ...], list[Failure]]:
    """``api_version`` of every MegakernelSpec in the package that an entry point names."""
    top = target.partition(":")[0].split(".")[0]
    folder = next((f for f in site_packages if (f / top).is_dir()), None)
    if folder is None:
        found = "no such package (an editable install?)"
        return (), [failure("interface.plugin_missing", target, f"a package {top} in site-packages", found, "install the plugin")]
    sglang = next((f for f in site_packages if (f / CONTRACT_FILE).is_file()), None)
    contract = Tree(sglang, only=(CONTRACT_FOLDER,)) if sglang is not None else None
    package = Package(Tree(folder, leave_out=("**/tests/**",), only=(top,)), contract)
    broken = package.broken()
    if broken:
        return (), [failure("interface.plugin_unreadable", str(b), "Python", b.reason, "reinstall the plugin") for b in broken]
    edits = PythonEdits(package)
    calls = edits.calls("MegakernelSpec")
    if not calls:
        return (), [failure("interface.plugin_no_spec", f"{folder / top}", "a MegakernelSpec", "none", "check the plugin")]
    versions: list[int] = []
    failures: list[Failure] = []
    for call in calls:
        where = f"{folder / call.module.path}:{call.line} {VERSION_ARGUMENT}"
        given = edits.given(call, VERSION_ARGUMENT, VERSION_POSITION)
        if given is None:
            failures.append(failure("interface.plugin_no_version", where, "an integer", "nothing given", "check the plugin"))
            continue
        value = given if isinstance(given, Stuck) else edits.values.of(given)
        if isinstance(value, Stuck):
            failures.append(failure("interface.plugin_not_constant", where, "a constant", value.reason, "read it by hand"))
        else:
            versions.append(value.value)
    return tuple(versions), failures


def _clashes(site_packages: Sequence[Path], entries: list[_Entry]) -> list[Failure]:
    """Two plugins for one architecture: SGLang raises in the second, logs it and goes on without."""
    owners: dict[str, dict[str, str]] = {}
    for entry in entries:
        top = entry.target.partition(":")[0].split(".")[0]
        folder = next((f for f in site_packages if (f / top).is_dir()), None)
        if folder is None:
            continue
        package = Package(Tree(folder, leave_out=("**/tests/**",), only=(top,)))
        for architecture, path in _registered(package):
            owners.setdefault(architecture, {}).setdefault(path, f"{entry.distribution} ({path})")
    return [
        failure(
            "interface.architecture_twice",
            f"megakernel specs for {architecture}",
            "one plugin",
            f"{', '.join(sorted(who.values()))}; {_SILENT}",
            "uninstall one, or name the other's entry point in SGLANG_PLUGINS",
        )
        for architecture, who in sorted(owners.items())
        if len(who) > 1
    ]


def _registered(package: Package) -> list[tuple[str, str]]:
    """(architecture, path) of each ``register(architecture=..., path=...)`` whose arguments can be told."""
    follower = PythonEdits(package).follower
    out = []
    for module in package.giving("architecture"):
        for call, scope in module.calls:
            given = {arg.keyword.value: Place(arg.value, scope) for arg in call.args if arg.keyword is not None}
            if {"architecture", "path"} <= set(given):
                texts = [follower.follow(given[key]).end for key in ("architecture", "path")]
                values = [text(end) for end in texts]
                if values[0] and values[1]:
                    out.append((values[0], values[1]))
    return out


def text(end: object) -> str | None:
    """The string of a followed string literal; None for anything else."""
    node = end.node if isinstance(end, Place) and not isinstance(end, Module) else None
    if isinstance(node, cst.SimpleString) and isinstance(node.evaluated_value, str):
        return node.evaluated_value
    return None
