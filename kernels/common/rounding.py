"""Exact roundings in float64 for the references: bf16, E4M3, UE8M0. numpy only, independent of the kernels."""

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


def _to_grid(x: F64, bits: int, least: int) -> F64:
    """Rounds to ``bits`` significant bits, to nearest even, with 2**least as the smallest step; NaN and inf stay."""
    finite = np.isfinite(x)
    safe = np.where(finite, x, 0.0)
    _, exponent = np.frexp(safe)
    step = np.maximum(exponent - bits, least).astype(np.int64)
    return np.where(finite, np.ldexp(np.rint(np.ldexp(safe, -step)), step), x)


def bf16(x: F64) -> F64:
    """To the nearest bf16, ties to even; overflow gives infinity."""
    rounded = _to_grid(x, 8, -133)
    return np.where(np.abs(rounded) >= 2.0**128, np.copysign(np.inf, rounded), rounded)


def f32(x: F64) -> F64:
    """To the nearest fp32 (a documented rounding point), as float64."""
    with np.errstate(over="ignore"):
        return np.asarray(x).astype(np.float32).astype(np.float64)


def e4m3_codes(x: F64) -> U8:
    """E4M3 codes, ties to even, saturating at 448; NaN and infinity-free by contract of the caller, NaN gives 0x7f."""
    rounded = np.minimum(np.abs(_to_grid(x, 4, -9)), 448.0)
    nan = np.isnan(x)
    safe = np.where(nan, 0.0, rounded)
    _, exponent = np.frexp(safe)
    normal = safe >= 2.0**-6
    mantissa = np.where(normal, np.ldexp(safe, 4 - exponent) - 8, np.ldexp(safe, 9))
    code = np.where(normal, (exponent + 6) * 8 + mantissa, mantissa).astype(np.uint8)
    code = code | np.where(np.signbit(x), 0x80, 0).astype(np.uint8)
    return np.where(nan, 0x7F, code).astype(np.uint8)


def e4m3_values(codes: U8) -> F64:
    """Values of E4M3 codes; 0x7f and 0xff are NaN."""
    exponent, mantissa = (codes >> 3 & 15).astype(np.int64), (codes & 7).astype(np.float64)
    value = np.where(exponent == 0, np.ldexp(mantissa, -9), np.ldexp(8 + mantissa, exponent - 10))
    value = np.where((codes & 0x7F) == 0x7F, np.nan, value)
    return np.where(codes & 0x80, -value, value)


def quantise(x: F64, group: int = 32) -> tuple[U8, U8]:
    """E4M3 codes and UE8M0 bytes of x [..., n], one scale per ``group``: 2**ceil(log2(amax/448)), the quotient in fp32.

    A group of zeros (or one whose scale would be 2**-127 or less) has byte 0 and codes 0; a group with a NaN or an infinity
    has byte 255 and NaN codes, so that it is never mistaken for data.
    """
    groups = x.reshape(*x.shape[:-1], x.shape[-1] // group, group)
    bad = ~np.isfinite(groups).all(-1)
    amax = np.abs(np.where(bad[..., None], 0.0, groups)).max(-1)
    quotient = f32(amax * np.float64(np.float32(1.0 / 448.0)))
    mantissa, exponent = np.frexp(quotient)
    power = np.where(mantissa == 0.5, exponent - 1, exponent) + 127  # ceil(log2), biased
    byte = np.where(quotient <= 2.0**-127, 0, np.clip(power, 1, 254))
    inverse = np.where(byte == 0, 0.0, np.ldexp(1.0, 127 - byte))
    codes = e4m3_codes(groups * inverse[..., None])
    codes = np.where(bad[..., None], 0x7F, codes).astype(np.uint8)
    return codes.reshape(x.shape), np.where(bad, 255, byte).astype(np.uint8)


def tiled_scales(scales: U8) -> U8:
    """Row-major scales [rows, groups] in the 128x4 tiles of block-scaled MMA, flat, unused places 0."""
    rows, groups = scales.shape
    flat = np.zeros(-(-rows // 128) * -(-groups // 4) * 512, np.uint8)
    r, g = np.meshgrid(np.arange(rows), np.arange(groups), indexing="ij")
    flat[(r // 128) * (-(-groups // 4)) * 512 + (g // 4) * 512 + (r % 32) * 16 + (r // 32 % 4) * 4 + g % 4] = scales
    return flat
