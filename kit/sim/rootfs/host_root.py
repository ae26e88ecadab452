"""What makes one simulated host itself: name, machine id, keys, hardware; written before its first boot."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from kit.sim.rootfs.keys import ensure_pair

_OPS_ID = 1000


def write(root: Path, name: str, client_public_key: str) -> str:
    """Write the host's own files under `root`; returns its public host key."""
    (root / "etc/hostname").write_text(f"{name}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {name}\n")
    (root / "etc/machine-id").write_text(f"{uuid.uuid4().hex}\n")
    folder = root / "home/ops/.ssh"
    folder.mkdir(mode=0o700, exist_ok=True)
    authorized = folder / "authorized_keys"
    authorized.write_text(f"{client_public_key} b300kit-sim\n")
    for path, mode in ((folder, 0o700), (authorized, 0o600)):
        path.chmod(mode)
        os.chown(path, _OPS_ID, _OPS_ID)
    return ensure_pair(root / "etc/ssh/ssh_host_ed25519_key", f"root@{name}")
