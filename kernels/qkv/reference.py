"""K3 in float64 with the kernel's rounding points: q norm and quantisation; kv norm, rope and the bytes of one cache row."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import rounding
from ..common.shapes import ROPE

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


@dataclass(frozen=True)
class Row:
    """One token's cache bytes; ``values`` are what the codes stand for before they were rounded, times 1/scale."""

    data: U8
    scale: U8
    scaled: F64  # per code, the value that was rounded to E4M3 (for judging ties)


def norm(x: F64, weight: F64, eps: float) -> F64:
    """x * rsqrt(mean(x^2) + eps) * weight over the last axis; the sum of squares rounded to fp32."""
    with np.errstate(all="ignore"):
        mean = rounding.f32((x * x).sum(-1, keepdims=True)) / x.shape[-1]
        return x / np.sqrt(mean + float(np.float32(eps))) * weight


def query(x: F64, weight: F64, eps: float) -> tuple[F64, U8, U8]:
    """x [T,1280] -> q (bf16 values), codes, scale bytes [T,40]."""
    q = rounding.bf16(norm(x, weight, eps))
    codes, scales = rounding.quantise(q)
    return q, codes, scales


def _rope(tail: F64, angles: F64) -> F64:
    cos, sin = angles[:, 0::2], angles[:, 1::2]
    real, imaginary = tail[:, 0::2], tail[:, 1::2]
    return np.stack([real * cos - imaginary * sin, real * sin + imaginary * cos], -1).reshape(tail.shape)


def kv_rows(x: F64, weight: F64, angles: F64, eps: float, layout: str) -> list[Row]:
    """x [T,512], angles [T,64] (cos, sin interleaved) -> each token's data and scale bytes in ``layout``."""
    with np.errstate(all="ignore"):
        value = norm(x, weight, eps)
        if layout == "v41":
            value = rounding.bf16(value)
        tail = rounding.bf16(_rope(value[:, -ROPE:], angles))
        if layout == "v41":
            value = np.concatenate([value[:, :-ROPE], tail], -1)
            return [_codes(row, 32, 2.0**-13 * 448) for row in value]
        rows = []
        for row, rope in zip(value[:, :-ROPE], tail, strict=True):
            coded = _codes(row, 64, float(np.float32(1e-4)))
            rope_bytes = (rope.astype(np.float32).view(np.uint32) >> 16).astype("<u2").view(np.uint8)
            scale = np.concatenate([coded.scale, np.zeros(1, np.uint8)])  # the pad byte, never written by the kernel
            rows.append(Row(np.concatenate([coded.data, rope_bytes]), scale, coded.scaled))
        return rows


def _codes(row: F64, group: int, floor: float) -> Row:
    groups = row.reshape(-1, group)
    bad = ~np.isfinite(groups).all(-1)
    amax = np.maximum(np.abs(np.where(bad[:, None], 0.0, groups)).max(-1), floor)
    mantissa, exponent = np.frexp(rounding.f32(amax / 448.0))
    power = np.where(mantissa == 0.5, exponent - 1, exponent)
    scaled = groups * np.ldexp(1.0, -power)[:, None]
    codes = np.where(bad[:, None], 0x7F, rounding.e4m3_codes(scaled)).astype(np.uint8)
    return Row(codes.reshape(-1), np.where(bad, 255, power + 127).astype(np.uint8), scaled.reshape(-1))
