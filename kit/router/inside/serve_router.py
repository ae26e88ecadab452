"""Starts sglang-router with its keys read from files, in this process: they are in no argument.

``B300KIT_ROUTER_KEY_FILE``: the key of the control plane (who may add and remove workers) and of requests. A path that begins
with ``%`` lies in systemd's ``CREDENTIALS_DIRECTORY``. Arguments: sglang-router's own.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

SHORTEST = 16


def read_key(variable: str) -> str | None:
    """None where none is declared. Declared and absent or short ends the start: never open by accident."""
    name = os.environ.pop(variable, "")
    if not name:
        return None
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / name[1:] if name.startswith("%") else Path(name)
    try:
        key = path.read_text().strip()
    except OSError as error:
        sys.exit(f"the router's key cannot be read: {path}: {error.strerror}")
    if len(key) < SHORTEST:
        sys.exit(f"the router's key in {path} is shorter than {SHORTEST} characters")
    return key


def main() -> None:
    """As ``python -m sglang_router.launch_router``, with the keys put in."""
    from sglang_router.launch_router import launch_router, parse_router_args

    key = read_key("B300KIT_ROUTER_KEY_FILE")
    arguments = parse_router_args(sys.argv[1:])
    if key is not None:
        arguments.api_key = key
        arguments.control_plane_api_keys = [("b300kit", "b300kit", key, "admin")]
    launch_router(arguments)


if __name__ == "__main__":
    main()
