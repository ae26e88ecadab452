"""Where a page's content comes from: versions, digests, sums. Pure."""

from __future__ import annotations

from kit.record.model import HostRecord, RunRecord, Verification
from kit.report.clean import one_line, visible


def run_origin(run: RunRecord) -> tuple[tuple[str, str], ...]:
    """Label and value of what made the record."""
    document = run.document
    if document is None:
        return (("Record", run.id),)
    return (
        ("Record", run.id),
        ("Command", visible(" ".join(document.argv))),
        ("Started", document.started),
        ("Finished", document.finished or "not recorded"),
        ("b300kit", f"{document.kit_version}, commit {document.git_commit or 'not in a git checkout'}"),
        ("Control machine", f"{document.control.hostname}, {document.control.system}, kernel {document.control.kernel}"),
        ("Python", document.python),
        *((name, version) for name, version in sorted(document.packages.items())),
    )


def host_origin(host: HostRecord) -> tuple[tuple[str, str], ...]:
    """Label and value of what one host's part was made from."""
    facts, lock = host.facts or host.verify_facts, host.lock
    entries: list[tuple[str, str]] = []
    if facts is not None:
        entries += [("Boot", facts.host.boot_id), ("Facts read", f"{facts.collected_at} by the host's clock")]
    if host.plan is not None:
        entries.append(("Plan digest", host.plan.digest()))
    if host.verify_plan is not None:
        entries.append(("Verifying plan digest", host.verify_plan.digest()))
    if lock is not None:
        entries.append(
            ("Locked driver", f"{lock.driver or 'not resolved'}, Fabric Manager {lock.fabric_manager or 'not resolved'}")
        )
    return tuple((label, one_line(value)) for label, value in entries)


def sums_text(check: Verification) -> str:
    """Whether the record is as it was written, in one sentence."""
    if check.ok and not check.findings:
        return f"All {check.checked} files of this record agree with their sums."
    if check.ok:
        return f"{check.checked} files have sums; what was written after the last sums is listed below, nothing else differs."
    return "This record is not as it was written:"
