"""What a patch file and a series may say. Pure data; :mod:`kit.patch.load` reads it, :mod:`kit.patch.engine` judges it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator


class Strict(BaseModel):
    """Frozen; unknown keys are errors; keys are written with hyphens in the file."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", populate_by_name=True, alias_generator=lambda name: name.replace("_", "-")
    )


Text = Annotated[str, StringConstraints(min_length=3, strip_whitespace=True)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}\z")]
Glob = Annotated[str, StringConstraints(pattern=r"^[^/\\][^\\]*\z")]
Dotted = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*\z")]
Identifier = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_]\w*\z")]


class Count(Strict):
    """How many places an edit may have. ``at_most: null`` means no upper bound."""

    at_least: int = Field(ge=0)
    at_most: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _ordered(self) -> Count:
        if self.at_most is not None and self.at_most < self.at_least:
            raise ValueError("at-most is less than at-least")
        return self

    def holds(self, number: int) -> bool:
        """Whether a number of places is as declared."""
        return self.at_least <= number and (self.at_most is None or number <= self.at_most)

    def __str__(self) -> str:
        if self.at_least == self.at_most:
            return f"exactly {self.at_least}"
        return f"at least {self.at_least}" + ("" if self.at_most is None else f", at most {self.at_most}")


class Meaning(Strict):
    """How names tell what a number means. Names are compared in snake case: ``kResidentBlocks`` is ``resident_blocks``."""

    same: tuple[str, ...] = ()
    """Globs: a constant so named *is* the setting, whatever else uses it."""
    different: tuple[str, ...] = ()
    """Globs that win over ``same``: ``*_per_*`` is another quantity."""
    related: tuple[str, ...] = ()
    """Words: the old value under such a name may be the setting, so a person must look."""
    unrelated: tuple[str, ...] = ()
    """``path-glob:name`` of constants that a person looked at and found to be something else."""


class PythonArgument(Strict):
    """Follow the value that a call gives to an argument, to the literal that it comes from, and change that."""

    kind: Literal["python-argument"]
    call: Dotted
    argument: Identifier
    position: int | None = Field(default=None, ge=0)
    """Index of the argument when it is given without its name."""
    old: int
    new: int
    count: int = Field(default=1, ge=1)
    """Calls expected in the tree, tests left out."""
    meaning: Meaning = Meaning()


class PythonMember(Strict):
    """Add one enum member to the set that a call gives to an argument."""

    kind: Literal["python-member"]
    call: Dotted
    argument: Identifier
    position: int | None = Field(default=None, ge=0)
    enum: Dotted
    """The enum's class name, e.g. ``Feature``."""
    add: Identifier
    count: int = Field(default=1, ge=1)


class CConstant(Strict):
    """Change named constants of C, C++ and CUDA headers: ``#define``, ``constexpr``, ``const``, enumerators."""

    kind: Literal["c-constant"]
    files: tuple[Glob, ...] = Field(min_length=1)
    old: int
    new: int
    count: Count = Count(at_least=1, at_most=1)
    meaning: Meaning


class TextReplace(Strict):
    """Change a value on each line that an anchor finds: for what has no grammar here (CMake, TOML, assembler)."""

    kind: Literal["text-replace"]
    files: tuple[Glob, ...] = Field(min_length=1)
    anchor: Text
    """A regular expression for one line; its group ``value`` is what is checked and changed."""
    old: str = Field(min_length=1)
    new: str = Field(min_length=1)
    count: Count = Count(at_least=1, at_most=1)


Edit = Annotated[PythonArgument | PythonMember | CConstant | TextReplace, Field(discriminator="kind")]


class AppliesTo(Strict):
    """What the patch was written for."""

    project: Text
    interface: tuple[int, ...] = Field(min_length=1)
    """Megakernel interface versions (``MegakernelSpec.api_version``)."""
    version: Text
    """In words, for a person."""


class SpecField(Strict):
    """After the edits, import the plugin, ask ``find_spec`` and look at a field."""

    architecture: Text
    isa: Text
    field: Dotted
    equals: int | None = None
    contains: Identifier | None = None
    """A member's name."""

    @model_validator(mode="after")
    def _one(self) -> SpecField:
        if (self.equals is None) == (self.contains is None):
            raise ValueError("give one of equals, contains")
        return self

    def __str__(self) -> str:
        wanted = f"= {self.equals}" if self.contains is None else f"contains {self.contains}"
        return f"find_spec({self.architecture}, {self.isa}).{self.field} {wanted}"


class Patch(Strict):
    """One patch file. The five header fields are obligatory: a patch without an end date stays for ever."""

    name: str
    """The file's name without ``.yml``."""
    description: Text = Field(alias="Description")
    origin: Text = Field(alias="Origin")
    forwarded: Text = Field(alias="Forwarded")
    applies_to: AppliesTo = Field(alias="Applies-To")
    remove_when: Text = Field(alias="Remove-When")
    edits: tuple[Edit, ...] = Field(min_length=1)
    post_conditions: tuple[SpecField, ...] = ()


class ContractFile(Strict):
    """A file of the contract, by its path below ``site-packages``."""

    path: Glob
    sha256: Sha256


class Contract(Strict):
    """The public interface that post-conditions import: the real files, pinned by hash."""

    package: Text
    version: Text
    wheel_sha256: tuple[Sha256, ...] = Field(min_length=1)
    """Of every wheel of that version that holds these files."""
    module: Dotted
    files: tuple[ContractFile, ...] = Field(min_length=1)


class SeriesFile(Strict):
    """``series.yml``."""

    project: Text
    version: Text
    contract: Contract
    leave_out: tuple[Glob, ...] = ()
    """Globs of the source tree that are no part of the product: tests, documents, benchmarks."""
    untouched: tuple[Glob, ...] = ()
    """Globs that no edit may name: the kernels."""
    patches: tuple[str, ...] = Field(min_length=1)
    routes: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    """The patches that each route takes, in their order; without a route, all are looked at."""


class Series(Strict):
    """A whole series, read and checked."""

    name: str
    """``<project>/<version folder>``."""
    sha256: Sha256
    """Over the names and bytes of ``series.yml`` and every patch, in order: what an image lock pins."""
    declared: SeriesFile
    patches: tuple[Patch, ...]
    route: str | None = None

    def along(self, route: str | None) -> Series:
        """The series with the patches of one route. Raises KeyError for a route that it does not have."""
        if route is None:
            return self
        wanted = self.declared.routes[route]
        return self.model_copy(update={"patches": tuple(p for p in self.patches if p.name in wanted), "route": route})
