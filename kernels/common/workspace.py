"""Scratch memory of the kernels whose blocks meet: zeroed once, then the kernels leave its counters at zero."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .errors import ArgumentError

if TYPE_CHECKING:
    import torch


class Workspace:
    """Device scratch of one operator for up to ``rows`` rows, bound to the first stream that uses it.

    Two streams in one workspace would mix their partial sums, so a second stream is refused; ``release`` (after a
    synchronisation by the caller) frees it for another.
    """

    def __init__(self, op: str, rows: int, device: torch.device | str = "cuda") -> None:
        import torch

        from .library import library

        self.op, self.rows = op, rows
        size = int(getattr(library(), f"b300k_{op}_workspace")(rows))
        self.buffer = torch.zeros(size, dtype=torch.uint8, device=device)
        self._stream: int | None = None

    def claim(self, rows: int, device: torch.device, stream: int) -> int:
        """The address for a launch of ``rows`` rows on ``stream``; raises ArgumentError on another stream, device or size."""
        if device != self.buffer.device:
            raise ArgumentError(self.op, "workspace", f"a workspace on {device}", str(self.buffer.device))
        if rows > self.rows:
            raise ArgumentError(self.op, "workspace", f"a workspace for {rows} rows", f"one for {self.rows}")
        if self._stream is None:
            self._stream = stream
        elif self._stream != stream:
            raise ArgumentError(self.op, "workspace", f"use on its stream {self._stream:#x}", f"stream {stream:#x}")
        return self.buffer.data_ptr()

    def release(self) -> None:
        """Unbinds the stream. The caller has made sure that no launch on it is in flight."""
        self._stream = None


_SHARED: dict[tuple[str, int, int], Workspace] = {}


def shared(op: str, limit: int, device: torch.device, stream: int) -> Workspace:
    """The process's workspace of ``op`` for this device and stream, made at first use (outside a capture: it allocates).

    Raises ArgumentError when it would have to be made while a graph is captured.
    """
    import torch

    key = (op, device.index, stream)
    if key not in _SHARED:
        if torch.cuda.is_current_stream_capturing():
            raise ArgumentError(
                op, "workspace", "a workspace made before capture (call the operator once on this stream)", "none"
            )
        _SHARED[key] = Workspace(op, limit, device)
    return _SHARED[key]
