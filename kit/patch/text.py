"""A report as text for a terminal. Pure."""

from __future__ import annotations

from kit.patch.report import Held, PatchReport, PatchResult, State

MAX_SITES = 8
_VERDICT = {True: "fits", False: "does not fit as it is: a person must look"}


def table(report: PatchReport, source: str) -> str:
    """States first, then each patch's reason and places."""
    width = max((len(p.name) for p in report.patches), default=0)
    lines = [f"series  {report.series}", f"source  {source}", ""]
    lines += [f"  {p.name:<{width}}  {p.state}" for p in report.patches]
    for patch in report.patches:
        lines += ["", *_patch(patch)]
    if report.post_conditions:
        lines += ["", "after the edits, asked of the imported plugin:"]
        lines += [f"  {c.held:<7}  {c.condition}: {c.reason}" for c in report.post_conditions]
    lines += ["", _end(report)]
    return "\n".join(lines) + "\n"


def _patch(patch: PatchResult) -> list[str]:
    out = [f"{patch.name}: {patch.state}", f"  {patch.reason}"]
    for place in patch.sites[:MAX_SITES]:
        out.append(f"  {place.file}:{place.line}: {place.found}")
        out += [f"      {place.note}"] if place.note else []
    if len(patch.sites) > MAX_SITES:
        out.append(f"  and {len(patch.sites) - MAX_SITES} more places (--format json has them)")
    if patch.next and patch.state not in (State.APPLIES, State.ALREADY):
        out.append(f"  Next: {patch.next}")
    return out


def _end(report: PatchReport) -> str:
    unseen = sum(c.held is Held.SKIPPED for c in report.post_conditions)
    tail = f"; {unseen} post-conditions not looked at here (the image build does)" if unseen and report.fits else ""
    return (
        f"The series {_VERDICT[report.fits]}" + (", nothing to write" if report.fits and not report.pending else "") + tail + "."
    )
