"""Standard output holds a command's data and nothing else, whatever a library or a child process prints."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import threading
from collections.abc import Iterator

_ESCAPE = re.compile(r"\x1b\[[0-9;:]*[A-Za-z]|\x1b\]8;[^\x07\x1b]*(?:\x07|\x1b\\)")


class Stdout:
    """Where data goes. While :meth:`reserved`, all other output to descriptor 1 goes to standard error."""

    def __init__(self, json: bool) -> None:
        self.json = json
        self._descriptor = 1
        self._claim = threading.Lock()

    def claim(self) -> bool:
        """True for the first who asks: one run tells one outcome, also when two threads see its end."""
        return self._claim.acquire(blocking=False)

    @contextlib.contextmanager
    def reserved(self) -> Iterator[None]:
        """Point descriptor 1 at standard error for a while."""
        sys.stdout.flush()
        saved = os.dup(1)
        try:
            os.dup2(2, 1)
            self._descriptor = saved
            yield
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
            os.dup2(saved, 1)
            self._descriptor = 1
            os.close(saved)

    def write(self, text: str) -> None:
        """Write and flush; escape sequences are dropped where nobody would see colours. Raises OSError."""
        if os.environ.get("NO_COLOR") or not os.isatty(self._descriptor):
            text = _ESCAPE.sub("", text)
        data = text.encode("utf-8", "backslashreplace")
        sys.stdout.flush()
        while data:
            data = data[os.write(self._descriptor, data) :]
