"""Child processes for libraries that can hang in the kernel: killable, and never waited for longer than asked."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

from kit.facts.host import bundle
from kit.facts.host.read import PATH, Json, Unreadable, kill

_PR_SET_PDEATHSIG = 1
MAX_ANSWER = 8 * 1024 * 1024


class Child:
    """One module of this package running in a Python of its own; its answer is one JSON document.

    Input and outputs are files in memory, not our own pipes: a child that hangs for ever in the kernel holds nothing
    that the ssh session waits for.
    """

    def __init__(
        self, entry: str, timeout_s: float, arguments: Sequence[str] = (), settings: Mapping[str, str] | None = None
    ) -> None:
        self.entry = entry
        self.timeout_s = timeout_s
        self.deadline = time.monotonic() + timeout_s
        source = _memory(bundle.script(entry))
        self.answer = _memory(b"")
        self.words = _memory(b"")
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-", *arguments],
                stdin=source,
                stdout=self.answer,
                stderr=self.words,
                env={"PATH": PATH, "LC_ALL": "C", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", **(settings or {})},
                cwd="/",
                start_new_session=True,
            )
        finally:
            os.close(source)

    def result(self) -> Json:
        """The document. Raises Unreadable when the child hung (it is killed), failed, or said nothing sensible."""
        try:
            status = self.process.wait(max(0.0, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            kill(self.process)
            raise Unreadable(f"no answer in {self.timeout_s:g} s, killed; it was at: {self._last() or 'start'}") from None
        if status != 0:
            how = f"signal {-status}" if status < 0 else f"status {status}"
            raise Unreadable(f"{self.entry} reader ended with {how} at: {self._last() or 'start'}")
        return json.loads(os.pread(self.answer, MAX_ANSWER, 0).decode())

    def steps(self) -> list[str]:
        """What it said it was doing so far."""
        return os.pread(self.words, 65536, 0).decode("utf-8", "replace").strip().splitlines()

    def _last(self) -> str:
        lines = self.steps()
        return lines[-1][:200] if lines else ""


def _memory(content: bytes) -> int:
    descriptor = os.memfd_create("b300kit")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def die_with_parent() -> None:
    """Called first in a child that loads the machine: whatever kills the parent, the load ends with it."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def doing(what: str) -> None:
    """Called in a child before each step that can hang, so that the parent can say where it was."""
    os.write(2, (what + "\n").encode())


def answer(document: Json) -> int:
    """Called in a child at its end."""
    sys.stdout.write(json.dumps(document))
    sys.stdout.flush()
    return 0
