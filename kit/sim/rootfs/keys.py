"""Key pairs, made before the first boot, so that the host key can be pinned and nothing is trusted on first use."""

from __future__ import annotations

from pathlib import Path

from kit.sim.commands import run


def ensure_pair(private: Path, comment: str) -> str:
    """Make an ed25519 key pair unless it is there; returns the public half, ``ssh-ed25519 AAAA...``."""
    public = private.with_name(f"{private.name}.pub")
    if not (private.exists() and public.exists()):
        private.parent.mkdir(parents=True, exist_ok=True)
        for stale in (private, public):
            stale.unlink(missing_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", private])
    kind, key, *_ = public.read_text().split()
    return f"{kind} {key}"
