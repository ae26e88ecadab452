#!/usr/bin/python3
"""The host's part of sending a large file: how much is there, one more slice, the end."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: weights_file
short_description: Send a large file in slices, going on where an earlier run ended
description:
  - The file grows under another name; it takes its own when its size and hash are right. One with another hash is removed.
  - The action plugin beside this module reads the source on the control machine and calls it for each slice.
options:
  src:
    description: The file on the control machine.
    type: path
    required: true
  path:
    description: The file on the host.
    type: path
    required: true
  bytes:
    description: Its size.
    type: int
    required: true
  sha256:
    description: Its hash, in hex.
    type: str
    required: true
  slice:
    description: Set by the action plugin; a slice to append.
    type: path
author: b300kit
"""

EXAMPLES = r"""
- name: Send a file
  weights_file:
    src: /models/flash/model-00001.safetensors
    path: /var/lib/b300kit/models/flash/model-00001.safetensors
    bytes: 5000000000
    sha256: "{{ sha256 }}"
"""

RETURN = r"""
have:
  description: Bytes that are there.
  returned: always
  type: int
"""

CHUNK = 1024 * 1024


def sha256(path: Path) -> str:
    """Of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(CHUNK):
            digest.update(data)
    return digest.hexdigest()


def append(partial: Path, piece: Path) -> None:
    """Add a slice, to the disk."""
    with partial.open("ab") as target, piece.open("rb") as source:
        while data := source.read(CHUNK):
            target.write(data)
        target.flush()
        os.fsync(target.fileno())


def main() -> None:
    """The module."""
    module = AnsibleModule(
        argument_spec={
            "src": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "bytes": {"type": "int", "required": True},
            "sha256": {"type": "str", "required": True},
            "slice": {"type": "path"},
        }
    )
    options = module.params
    path = Path(options["path"])
    partial = path.with_name(f"{path.name}.b300kit-partial")
    try:
        if path.exists():
            module.exit_json(changed=False, have=path.stat().st_size)
        if options["slice"]:
            append(partial, Path(options["slice"]))
        have = partial.stat().st_size if partial.exists() else 0
        if have >= options["bytes"]:
            partial.touch(mode=0o644)
            found = sha256(partial)
            if found != options["sha256"] or have > options["bytes"]:
                partial.unlink()
                module.fail_json(msg=f"{path}: sha256 {found}, not {options['sha256']}; removed: run again")
            partial.rename(path)
    except OSError as error:
        module.fail_json(msg=f"{path}: {error}")
    module.exit_json(changed=bool(options["slice"]) or path.exists(), have=have)


if __name__ == "__main__":
    main()
