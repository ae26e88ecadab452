"""Starts SGLang with its API key read from a file, in this process: the key is in no argument, no variable and no log line.

SGLang prints all its arguments at start, the key among them, and takes the key from its command line alone. So the key is put
in after the arguments are parsed, and every log record of this process is made without it.

Arguments: SGLang's own. ``B300KIT_KEY_FILE`` names the file; without it there is no key. A path that begins with ``%`` lies in
systemd's ``CREDENTIALS_DIRECTORY``.
"""

from __future__ import annotations

import builtins
import logging
import os
import sys
from pathlib import Path
from typing import Any

HIDDEN = "<api key>"


def read_key() -> str | None:
    """None where none is declared. Declared and absent or short ends the start: never open by accident."""
    name = os.environ.pop("B300KIT_KEY_FILE", "")
    if not name:
        return None
    path = Path(os.environ.get("CREDENTIALS_DIRECTORY", "/nonexistent")) / name[1:] if name.startswith("%") else Path(name)
    try:
        key = path.read_text().strip()
    except OSError as error:
        sys.exit(f"the API key cannot be read: {path}: {error.strerror}")
    if len(key) < 16:
        sys.exit(f"the API key in {path} is shorter than 16 characters")
    return key


def hide(key: str) -> None:
    """No log record and no print of this process holds the key."""
    make = logging.getLogRecordFactory()

    def without(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = make(*args, **kwargs)
        text = record.getMessage()
        if key in text:
            record.msg, record.args = text.replace(key, HIDDEN), ()
        return record

    say = builtins.print

    def quiet(*args: Any, **kwargs: Any) -> None:
        say(*(arg.replace(key, HIDDEN) if isinstance(arg, str) else arg for arg in args), **kwargs)

    logging.setLogRecordFactory(without)
    builtins.print = quiet


def main() -> None:
    """As ``python -m sglang.launch_server`` does it, with the key put in."""
    key = read_key()
    if key is not None:
        hide(key)
    from sglang.launch_server import run_server
    from sglang.srt.plugins import load_plugins
    from sglang.srt.server_args import prepare_server_args
    from sglang.srt.utils import kill_process_tree

    load_plugins()
    arguments = prepare_server_args(sys.argv[1:])
    if key is not None:
        arguments.api_key = key
    try:
        run_server(arguments)
    finally:
        kill_process_tree(os.getpid(), include_parent=False)


if __name__ == "__main__":
    main()
