"""A reference: the output of an accepted build, which later builds of the same numerics class must give byte for byte. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from pydantic import Field

from kit.gates.declare import Frozen
from kit.gates.judges.greedy import Decoded
from kit.spec.model import Name

NAMESPACE = "b300kit-reference"
"""Of the signature: one made for anything else does not verify."""


class Reference(Frozen):
    """``fleet/references/NUMERICS.json``, with ``NUMERICS.json.sig`` beside it."""

    schema_version: int = 1
    numerics: Name
    profile: Name
    image_id: str
    weights_sha256: str
    argv_sha256: str
    prompts_sha256: str
    tokens: int
    outputs: tuple[Decoded, ...]
    run: str
    """The record it is from."""
    recorded: str
    """UTC."""
    replaces: str | None = Field(description="Hash of the reference before this one; None for the first.")
    reason: str = Field(min_length=8, description="Why the reference was set or changed, in the operator's words.")

    def text(self) -> str:
        """As it is stored and signed."""
        return self.model_dump_json(indent=1) + "\n"

    def sha256(self) -> str:
        """Of the stored text."""
        return hashlib.sha256(self.text().encode()).hexdigest()

    def title(self) -> str:
        """For the table."""
        return f"{self.profile} of {self.recorded[:10]} (image {self.image_id[:19]})"


def differences(before: Reference | None, outputs: Sequence[Decoded]) -> tuple[int, int]:
    """(prompts whose output changes, prompts in all) when ``outputs`` become the reference."""
    known = {one.prompt: one for one in before.outputs} if before is not None else {}
    return sum(known.get(one.prompt) != one for one in outputs), len(outputs)
