"""A captured graph that knows its tensors: in debug mode a replay after one was freed is refused."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

from .errors import ArgumentError

if TYPE_CHECKING:
    import torch


class Replay:
    """Wraps a CUDA graph and the tensors that it reads and writes, by name.

    With ``debug`` (default: B300KIT_KERNELS_DEBUG=1) it keeps weak references and refuses to replay once one is gone;
    otherwise it keeps the tensors alive, so that the graph can never meet freed memory.
    """

    def __init__(self, graph: torch.cuda.CUDAGraph, tensors: dict[str, torch.Tensor], debug: bool | None = None) -> None:
        self.graph = graph
        self.debug = os.environ.get("B300KIT_KERNELS_DEBUG") == "1" if debug is None else debug
        self._weak = {name: weakref.ref(value) for name, value in tensors.items()} if self.debug else {}
        self._kept = {} if self.debug else dict(tensors)

    def replay(self) -> None:
        """Replays the graph; raises ArgumentError naming a freed tensor."""
        for name, reference in self._weak.items():
            if reference() is None:
                raise ArgumentError("replay", name, "a tensor still alive", "a freed one")
        self.graph.replay()
