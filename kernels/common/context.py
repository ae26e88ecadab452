"""What a call needs besides its tensors: the stream, the GPU, the launch choice."""

from __future__ import annotations

from functools import cache

import torch

from ..launch import Gpu, Launch, Table, choose
from .library import device_properties

_TABLE = Table()


def set_table(table: Table) -> None:
    """Uses ``table`` for every later launch of the process (plugins call it once, after printing its note)."""
    global _TABLE
    _TABLE = table


@cache
def gpu(index: int) -> Gpu:
    """GPU ``index``; raises UnsupportedDevice when the kernels cannot run there."""
    capability, sm_count = device_properties(index)
    return Gpu(torch.cuda.get_device_name(index), capability, sm_count)


def launch_for(op: str, rows: int, device: torch.device, override: Launch | None) -> Launch:
    """The launch to use; ``override`` wins."""
    return override or choose(op, max(rows, 1), gpu(device.index), _TABLE)


def stream_of(device: torch.device) -> int:
    """The current stream's handle."""
    return torch.cuda.current_stream(device).cuda_stream
