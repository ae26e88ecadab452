"""Between torch tensors and the numpy references; used by CPU kernels and tests."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray


def f64(value: torch.Tensor | None) -> NDArray[np.float64] | None:
    """Values of a bf16 or fp32 tensor as float64; None stays."""
    return None if value is None else value.detach().cpu().to(torch.float32).numpy().astype(np.float64)


def need(value: torch.Tensor) -> NDArray[np.float64]:
    """f64 of a tensor that is there."""
    found = f64(value)
    assert found is not None
    return found


def to_bf16(value: NDArray[np.float64], device: torch.device | str = "cpu") -> torch.Tensor:
    """Exact: the values are bf16 already."""
    return torch.from_numpy(value.astype(np.float32)).to(torch.bfloat16).to(device)


def to_f32(value: NDArray[np.float64], device: torch.device | str = "cpu") -> torch.Tensor:
    """Rounded to fp32."""
    return torch.from_numpy(value.astype(np.float32)).to(device)


def codes(value: NDArray[np.uint8], device: torch.device | str = "cpu") -> torch.Tensor:
    """E4M3 codes as a float8_e4m3fn tensor."""
    return torch.from_numpy(np.ascontiguousarray(value)).view(torch.float8_e4m3fn).to(device)
