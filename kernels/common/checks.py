"""Argument checks: everything is refused by name before the device sees it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .errors import ArgumentError

if TYPE_CHECKING:
    import torch


def tensor(op: str, name: str, value: torch.Tensor, dtype: torch.dtype, shape: Sequence[int], device: torch.device) -> int:
    """Checks a dense tensor and returns its address.

    Expected: exactly this dtype, shape and device, C-contiguous, 16-byte aligned. Raises ArgumentError naming the argument.
    """
    if value.dtype != dtype:
        raise ArgumentError(op, name, f"dtype {dtype}", str(value.dtype))
    if tuple(value.shape) != tuple(shape):
        raise ArgumentError(op, name, f"shape {tuple(shape)}", str(tuple(value.shape)))
    if value.device != device:
        raise ArgumentError(op, name, f"device {device}", str(value.device))
    if not value.is_contiguous():
        raise ArgumentError(op, name, "contiguous memory", f"strides {tuple(value.stride())}")
    address = value.data_ptr()
    if address % 16 != 0:
        raise ArgumentError(op, name, "a 16-byte aligned address", f"address % 16 = {address % 16}")
    return address


def row_count(op: str, name: str, value: torch.Tensor, limit: int) -> int:
    """The first dimension of ``value``, refused over ``limit``."""
    if value.dim() < 1:
        raise ArgumentError(op, name, "a row dimension", "a scalar")
    rows = int(value.shape[0])
    if rows > limit:
        raise ArgumentError(op, name, f"at most {limit} rows", f"{rows} rows")
    return rows


def on_gpu(op: str, name: str, value: torch.Tensor) -> torch.device:
    """The tensor's CUDA device, refused when it is elsewhere or not the current one."""
    import torch

    if value.device.type != "cuda":
        raise ArgumentError(op, name, "a CUDA tensor", f"a tensor on {value.device}")
    if value.device.index != torch.cuda.current_device():
        raise ArgumentError(op, name, f"a tensor on the current device cuda:{torch.cuda.current_device()}", str(value.device))
    return value.device


def no_overlap(op: str, name: str, out: torch.Tensor, other: str, given: torch.Tensor) -> None:
    """Refuses an output that shares bytes with an input which other blocks still read."""
    start, end = out.data_ptr(), out.data_ptr() + out.numel() * out.element_size()
    low, high = given.data_ptr(), given.data_ptr() + given.numel() * given.element_size()
    if start < high and low < end:
        raise ArgumentError(op, name, f"memory apart from {other!r}", "overlapping memory")


def finite(op: str, name: str, value: torch.Tensor) -> None:
    """Once, when weights are loaded: refuses NaN and infinity. Synchronises."""
    import torch

    bad = int((~torch.isfinite(value.float())).sum())
    if bad:
        raise ArgumentError(op, name, "finite weights", f"{bad} of {value.numel()} values are NaN or infinite")
