"""What an image is wanted to be (``image.yml``), and what was resolved for it (``lock.yml``). Frozen, typed, no unknown key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from kit.slots.model import Route, Slots
from kit.spec.model import AbsolutePath, Name, PackageName, UserName, Version

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Digest = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
Commit = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Architecture = Annotated[str, StringConstraints(pattern=r"^sm_[0-9]{2,3}[af]?$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,63}$")]
PlainValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_./:,=+-]{1,256}$")]
"""Of an environment variable or label: nothing that a Dockerfile would expand or split."""
RelativePath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_./-]*$")]
PythonName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
"""A distribution's name, normalized: lower case, one hyphen for each run of ``-_.``."""
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.+!-]*\.whl$")]

FORBIDDEN_VARIABLES = {"SGLANG_SIMULATE_ACC_LEN": None, "NCCL_NVLS_ENABLE": "0"}
"""Variable -> the value that is forbidden, or None for any: each falsifies figures or hides a fault."""


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class DebianBase(_Frozen):
    """A Debian tree built here from the machine's own mirror: nothing but Debian's archive is needed."""

    kind: Literal["debian"]
    suite: Name
    packages: tuple[PackageName, ...]


class RegistryBase(_Frozen):
    """A published image, always taken by its digest; ``packages`` are installed on it."""

    kind: Literal["registry"]
    reference: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/-]*:[A-Za-z0-9._-]+$")]
    packages: tuple[PackageName, ...]


class PluginFolder(_Frozen):
    """The plugin's source as a folder beside ``image.yml``."""

    folder: RelativePath


class PluginGit(_Frozen):
    """The plugin's source in git: what is wanted; the lock says which commit that is."""

    git: Annotated[str, StringConstraints(pattern=r"^https://[A-Za-z0-9._/-]+$")]
    ref: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")]


class Plugin(_Frozen):
    """The megakernel plugin and what is done to it."""

    source: PluginFolder | PluginGit
    series: Annotated[str, StringConstraints(pattern=r"^[a-z0-9-]+/[A-Za-z0-9._-]+$")]
    route: Route
    package: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")]
    """Its Python package, where the patches are looked for in the finished image."""


class ImageSpec(_Frozen):
    """``images/<name>/image.yml``: what an operator declares. Versions and hashes are the lock's."""

    schema_version: Literal[1]
    name: Name
    title: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9 ,.()+-]{1,120}$")]
    simulated: bool
    """Its plugin is a stand-in and its engine runs on a CPU: never for a real host."""
    base: Annotated[DebianBase | RegistryBase, Field(discriminator="kind")]
    python: Annotated[str, StringConstraints(pattern=r"^3\.[0-9]{1,2}$")]
    """Of the base; decides with ``glibc`` which package files fit."""
    glibc: Annotated[str, StringConstraints(pattern=r"^2\.[0-9]{1,2}$")]
    requirements: RelativePath = "requirements.txt"
    """Beside ``image.yml``: exact versions, the whole closure; installed as listed, no dependency is followed."""
    tools: RelativePath = "tools.txt"
    """Likewise, of what installs and builds them: pip first of all. Not in the image."""
    plugin: Plugin
    stand_ins: RelativePath | None = None
    kernel_architectures: tuple[Architecture, ...]
    """Of this project's kernels; none: the wheel carries references and operators, no compiled code."""
    plugin_architectures: tuple[Architecture, ...] = ()
    """Each must be in the plugin's compiled code."""
    runtime: Literal["docker", "rootdir"]
    """How hosts run it: a container engine, or systemd with RootDirectory=."""
    build_tools: tuple[PackageName, ...] = ()
    """Compilers that stay because the engine compiles kernels as it runs. All others must be gone."""
    user: UserName = "engine"
    uid: Annotated[int, Field(ge=1000, le=60000)] = 10001
    prefix: AbsolutePath = "/opt/engine"
    home: AbsolutePath = "/var/lib/engine"
    environment: Mapping[Variable, PlainValue] = Field(default_factory=dict)
    source_date_epoch: Annotated[int, Field(ge=1_500_000_000, le=4_000_000_000)] = 1_767_225_600
    """The only time in the image: every file and the image itself carry it."""


class Wheel(_Frozen):
    """One package file."""

    version: Version
    file: FileName
    sha256: Sha256


class LockedBase(_Frozen):
    """What the base was resolved to."""

    digest: Digest | None
    """Of the published image, or of the Debian tree's archive. None: nobody resolved it yet."""
    packages: Mapping[PackageName, Version | None]
    """Every Debian package that the base holds, or that is installed on it."""


class LockedPlugin(_Frozen):
    """Which source the plugin is, and which patches are put on it."""

    commit: Commit | None
    """None for a folder of this project, or when nobody resolved it yet."""
    tree_sha256: Sha256 | None
    series_sha256: Sha256
    slots: Slots | None
    """The plugin's default slots as read from this source."""


class ImageLock(_Frozen):
    """``images/<name>/lock.yml``. Written by ``invoke image.lock`` alone; null means unresolved, and is refused."""

    schema_version: Literal[1]
    image: Name
    base: LockedBase
    packages: Mapping[PythonName, Wheel | None]
    """Every Python package, SGLang among them."""
    tools: Mapping[PythonName, Wheel | None]
    """What installs and builds them; not in the image."""
    plugin: LockedPlugin
    stand_ins_sha256: Sha256 | None
    kernels_version: Version
    """Of this project's kernel wheel, built from this checkout. The checkout's own commit pins its content, and the manifest
    tells it: a hash here would be stale after every change to a kernel."""

    def unresolved(self) -> tuple[str, ...]:
        """Dotted names of everything that is still null and must not be."""
        out = [] if self.base.digest else ["base.digest"]
        out += [f"base.packages.{name}" for name, version in self.base.packages.items() if version is None]
        out += [f"packages.{name}" for name, wheel in self.packages.items() if wheel is None]
        out += [f"tools.{name}" for name, wheel in self.tools.items() if wheel is None]
        if self.plugin.tree_sha256 is None:
            out.append("plugin.tree_sha256")
        if self.plugin.slots is None:
            out.append("plugin.slots")
        return tuple(out)
