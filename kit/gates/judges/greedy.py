"""greedy and agreement: the same bytes, and, fed the reference's text, the same top token."""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.judges.idle import Idle, idle_faults
from kit.gates.verdict import Fault, Judgement, fault, judged


class Decoded(Frozen):
    """One prompt of the pinned file, by its place there."""

    prompt: int
    tokens: tuple[int, ...]
    text: str


class GreedyEvidence(Frozen):
    """``reference`` None: none was ever accepted for this numerics class."""

    outputs: tuple[Decoded, ...]
    reference: tuple[Decoded, ...] | None
    reference_of: str
    """Which build it is from, in words."""
    idle: Idle


class GreedyLimits(Frozen):
    """Nothing to set: bytes are equal or not."""


class ForcedPrompt(Frozen):
    """The reference's output fed back: how often the top token was the reference's."""

    prompt: int
    positions: int
    agreed: int


class AgreementEvidence(Frozen):
    """Teacher-forced over the baseline's text."""

    prompts: tuple[ForcedPrompt, ...]
    reference_of: str | None
    idle: Idle


class AgreementLimits(Frozen):
    """The seed's noise floor on long prompts was 94 to 95.5%; short prompts carry the signal."""

    least: float = 0.94


def judge_greedy(evidence: GreedyEvidence, limits: GreedyLimits, prompts: int, tokens: int) -> Judgement:
    """Token for token and byte for byte; the first difference of each prompt is told."""
    wrong: list[Fault] = []
    unknown = idle_faults("greedy", evidence.idle)
    if len(evidence.outputs) != prompts:
        wrong.append(fault("greedy.count", "outputs", prompts, len(evidence.outputs)))
    short = [one for one in evidence.outputs if len(one.tokens) != tokens]
    wrong += [fault("greedy.length", f"prompt {one.prompt}", f"{tokens} tokens", len(one.tokens)) for one in short]
    if evidence.reference is None:
        step = "compare it with the baseline by hand, then `invoke reference.record`"
        unknown.append(fault("greedy.no_reference", "reference", "an accepted build of this numerics class", "none", step))
    known = {one.prompt: one for one in evidence.reference or ()}
    same = 0
    for one in evidence.outputs if evidence.reference is not None else ():
        theirs = known.get(one.prompt)
        if theirs is None:
            wrong.append(
                fault("greedy.reference", f"prompt {one.prompt}", "an output in the reference", "none", "record it anew")
            )
        elif theirs.tokens != one.tokens or theirs.text.encode() != one.text.encode():
            wrong.append(_difference(one, theirs))
        else:
            same += 1
    figures = {"prompts": len(evidence.outputs), "identical": same if evidence.reference is not None else None}
    return judged(wrong, unknown, f"{same} of {prompts} prompts x {tokens} tokens identical to {evidence.reference_of}", figures)


def _difference(mine: Decoded, theirs: Decoded) -> Fault:
    pairs = zip(mine.tokens, theirs.tokens, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(mine.tokens), len(theirs.tokens)))
    if mine.tokens == theirs.tokens:
        return fault(
            "greedy.bytes", f"prompt {mine.prompt}", "the same bytes", "the same tokens, other text", "the tokenizer changed"
        )
    a = theirs.tokens[at] if at < len(theirs.tokens) else "the end"
    b = mine.tokens[at] if at < len(mine.tokens) else "the end"
    step = "the build gives other output: find out why before it is accepted"
    return fault("greedy.bytes", f"prompt {mine.prompt} token {at}", a, b, step)


def judge_agreement(evidence: AgreementEvidence, limits: AgreementLimits) -> Judgement:
    """Over all positions of all prompts."""
    unknown = idle_faults("agreement", evidence.idle)
    if evidence.reference_of is None:
        unknown.append(fault("agreement.no_reference", "reference", "the baseline's text", "none", "`invoke reference.record`"))
    positions = sum(one.positions for one in evidence.prompts)
    agreed = sum(one.agreed for one in evidence.prompts)
    wrong: list[Fault] = []
    if evidence.reference_of is not None and positions == 0:
        wrong.append(fault("agreement.count", "positions", "more than 0", 0))
    share = agreed / positions if positions else float("nan")
    if positions and not (share >= limits.least):
        worst = min(evidence.prompts, key=lambda one: one.agreed / one.positions if one.positions else 1.0)
        found = f"{share:.4f}; worst prompt {worst.prompt}: {worst.agreed} of {worst.positions}"
        wrong.append(
            fault("agreement.low", "top-1 agreement", f"at least {limits.least:g}", found, "the numerics moved: compare KL")
        )
    figures = {"agreement": share, "positions": positions}
    return judged(wrong, unknown, f"{share:.2%} of {positions} positions as in {evidence.reference_of}", figures)
