"""K6h in float64: logits rounded to bf16, the first largest."""

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


def values(codes: U8, scales: U8) -> F64:
    """MXFP8: codes [V,K], scale bytes [V,K/32] -> W [V,K]."""
    return rounding.e4m3_values(codes) * np.ldexp(1.0, scales.astype(np.int64) - 127).repeat(32, 1)


def logits(x: F64, weight: F64) -> F64:
    """x [T,K], W [V,K] -> bf16 values [T,V]."""
    with np.errstate(all="ignore"):
        return rounding.bf16(x @ weight.T)


def argmax(values: F64) -> NDArray[np.int32]:
    """The first largest of each row; a NaN is larger than all else (numpy's own rule)."""
    return np.argmax(values, -1).astype(np.int32)
