"""K6 in float64: the weights' exact values, a matrix product."""

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]
BLOCK = 32


def values(codes: U8, scales: U8) -> F64:
    """codes [N,K], scale bytes [N/32,K/32] -> W [N,K]; byte b stands for 2**(b-127)."""
    scale = np.ldexp(1.0, scales.astype(np.int64) - 127)
    return rounding.e4m3_values(codes) * scale.repeat(BLOCK, 0).repeat(BLOCK, 1)


def gemv(x: F64, codes: U8, scales: U8) -> F64:
    """x [T,K] -> x W^T [T,N], not rounded."""
    return x @ values(codes, scales).T


def block_quantise(weight: F64) -> tuple[U8, U8]:
    """The checkpoint's form of a weight [N,K]: codes and scale bytes of 32x32 blocks, 2**ceil(log2(amax/448))."""
    n, k = weight.shape
    blocks = (
        weight.reshape(n // BLOCK, BLOCK, k // BLOCK, BLOCK).transpose(0, 2, 1, 3).reshape(n // BLOCK, k // BLOCK, BLOCK * BLOCK)
    )
    codes, scales = rounding.quantise(blocks, BLOCK * BLOCK)
    codes = codes.reshape(n // BLOCK, k // BLOCK, BLOCK, BLOCK).transpose(0, 2, 1, 3).reshape(n, k)
    return codes, scales.reshape(n // BLOCK, k // BLOCK)
