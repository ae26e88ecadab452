"""image: the files that run are the image's, by its own manifest."""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, Judgement, fault, judged


class Evidence(Frozen):
    """``differences`` comes from the check inside the image; None when it did not run to its end."""

    expected_id: str
    found_id: str | None
    differences: tuple[str, ...] | None
    files: int | None = None


class Limits(Frozen):
    """Nothing to set: every file counts."""


def judge(evidence: Evidence, limits: Limits) -> Judgement:
    """Right image, no difference."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    if evidence.found_id is None:
        unknown.append(fault("image.unknown", "image ID", evidence.expected_id, "could not be read"))
    elif evidence.found_id != evidence.expected_id:
        wrong.append(fault("image.id", "image ID", evidence.expected_id, evidence.found_id, "deliver and start the wanted image"))
    if evidence.differences is None:
        unknown.append(fault("image.unknown", "manifest", "the check's answer", "none"))
    elif not evidence.files:
        unknown.append(fault("image.unknown", "manifest", "files that were compared", "none"))
    step = "the image was changed after it was built: deliver it again"
    wrong += [fault("image.file", "manifest", "as built", line, step) for line in evidence.differences or ()]
    return judged(wrong, unknown, f"{evidence.files} files as built", {"files": evidence.files})
