"""The agreement hash; SGLang has no counterpart."""

from __future__ import annotations

import torch

from ..common.bench import Case
from ..launch import Launch
from . import ops
from .test_agree import inputs


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """One row count; a draft block of 6 ids a row."""
    v, state = inputs(rows, device=device), ops.new_state(device)
    plain = Launch(1, pdl=False)
    return [
        Case("agreement hash", rows, "ours", "ours", 1, lambda i: ops.run(*v, state)),
        Case("agreement hash", rows, "ours, no dependent launch", "ours", 1, lambda i: ops.run(*v, state, launch=plain)),
    ]
