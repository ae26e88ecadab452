"""What the operators' tests share."""

from __future__ import annotations

import numpy as np
import torch

ROWS = [1, 2, 3, 5, 6, 7, 8, 9, 16, 33, 64]
SM_COUNTS = [1, 7, 131, 132, 148, 152]  # the last two are B300's and GB300's, run virtually


def generator(seed: int) -> np.random.Generator:
    """A seeded generator."""
    return np.random.default_rng(seed)


def bf16_values(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> torch.Tensor:
    """Normal bf16 values on the CPU."""
    return torch.from_numpy((rng.standard_normal(shape) * scale).astype(np.float32)).to(torch.bfloat16)


def poison(*tensors: torch.Tensor) -> None:
    """Fills outputs with a pattern that no kernel writes: 0xCB bytes (a bf16 of -2.7e7)."""
    for tensor in tensors:
        tensor.view(torch.uint8).fill_(0xCB)


def poisoned(tensor: torch.Tensor) -> bool:
    """True when every byte is still the poison."""
    return bool((tensor.contiguous().view(torch.uint8) == 0xCB).all())


def bits(tensor: torch.Tensor) -> bytes:
    """The tensor's bytes, for equality of bits (NaN equals itself here)."""
    return tensor.detach().contiguous().cpu().reshape(-1).view(torch.uint8).numpy().tobytes()


def misaligned(tensor: torch.Tensor) -> torch.Tensor:
    """The same values at an address that is off by one element."""
    flat = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device=tensor.device)
    view = flat[1:].view(tensor.shape)
    view.copy_(tensor)
    return view
