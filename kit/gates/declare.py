"""What a profile says about its gates: which it requires, which its engine cannot do and why, and how big each is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from kit.gates.names import GATES, GateName

Count = Annotated[int, Field(ge=1, le=2_000_000)]
Reason = Annotated[str, StringConstraints(min_length=12, max_length=300)]
CaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,40}$")]


class Frozen(BaseModel):
    """Declared or recorded, never changed; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Batch(Frozen):
    """Prompts from the pinned file, and tokens decoded for each."""

    prompts: Count
    tokens: Count


class KlSize(Frozen):
    """Two sets, each scored several times."""

    short: Batch
    long: Batch
    repeats: Count = 3


class Cases(Frozen):
    """A gate made of cases. A case that this engine cannot do is named with the reason, and shown."""

    tokens: Count
    not_applicable: Mapping[CaseName, Reason] = Field(default_factory=dict)


class ArithmeticSize(Frozen):
    """Questions, and how many are asked at once."""

    questions: Count
    streams: Count
    tokens: Count


class CacheSize(Frozen):
    """Turns of one conversation; between them the device cache is filled with other text."""

    turns: Annotated[int, Field(ge=2, le=100)]
    prompt_tokens: Count
    tokens: Count


class NeedleSize(Frozen):
    """A prompt of so many tokens, with facts hidden in it."""

    prompt_tokens: Count
    facts: Annotated[int, Field(ge=1, le=20)] = 3
    tokens: Count


class SpeculationSize(Frozen):
    """Requests of one length, many at once; the shape that broke drafting in the field."""

    requests: Count
    concurrency: Count
    prompt_tokens: Count
    tokens: Count


class SpeedSize(Frozen):
    """Streams one after another, each timed from its first to its last token."""

    repetitions: Count
    tokens: Count


class Sizes(Frozen):
    """How big each gate is. A gate that is required must have its size."""

    greedy: Batch | None = None
    agreement: Batch | None = None
    kl: KlSize | None = None
    tools: Cases | None = None
    thinking: Cases | None = None
    arithmetic: ArithmeticSize | None = None
    cache_restore: CacheSize | None = None
    needle: NeedleSize | None = None
    speculation: SpeculationSize | None = None
    speed: SpeedSize | None = None


class Gates(Frozen):
    """Each gate stands in one of the two lists: none is left out in silence."""

    required: tuple[GateName, ...]
    not_applicable: Mapping[GateName, Reason] = Field(default_factory=dict)
    prompts: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,60}$")] = Field(
        description="The pinned prompts: fleet/prompts/NAME.json, token ids."
    )
    sizes: Sizes = Sizes()


Purpose = Literal["production", "baseline", "test"]
MAY_DROP: Mapping[Purpose, frozenset[str]] = {
    "production": frozenset(),
    "baseline": frozenset({"plugin"}),
    "test": frozenset(GATES),
}


def problems(gates: Gates, purpose: Purpose, megakernel: bool) -> list[tuple[str, str, str, str]]:
    """(key, expected, found, next) for each thing wrong with the lists.

    A production profile drops nothing; a baseline drops the megakernel's own gate alone; a test profile says why.
    """
    out: list[tuple[str, str, str, str]] = []
    both = sorted(set(gates.required) & set(gates.not_applicable))
    left = [name for name in GATES if name not in gates.required and name not in gates.not_applicable]
    twice = sorted({name for name in gates.required if gates.required.count(name) > 1})
    if both:
        out.append(("gates", "each gate in one list", f"in both: {', '.join(both)}", "keep it in one"))
    if left:
        found = f"in neither: {', '.join(left)}"
        out.append(("gates.required", "each gate in one of the lists", found, "require them, or say why not"))
    if twice:
        out.append(("gates.required", "each gate once", f"twice: {', '.join(twice)}", "remove the repeats"))
    dropped = sorted(set(gates.not_applicable) - MAY_DROP[purpose])
    if dropped:
        found = f"drops {', '.join(dropped)}"
        out.append(("gates.not_applicable", f"a {purpose} profile that drops no gate", found, "require them"))
    if megakernel and "plugin" in gates.not_applicable:
        out.append(("gates.not_applicable", "the plugin's gate with the megakernel", "it is dropped", "require it"))
    if not megakernel and "plugin" in gates.required:
        out.append(("gates.required", "no plugin gate without the megakernel", "it is required", "move it to not_applicable"))
    sized = type(gates.sizes).model_fields
    unsized = [name for name in gates.required if name in sized and getattr(gates.sizes, name) is None]
    if unsized:
        out.append(("gates.sizes", "a size for each required gate", f"none for {', '.join(unsized)}", "add it"))
    return out
