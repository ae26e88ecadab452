"""K3b in float64: the product, rounded to bf16, then K3's reference takes over."""

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]


def project(x: F64, weight: F64) -> F64:
    """x [T,5120], W [1792,5120] (exact values) -> qkv [T,1792], bf16 values."""
    with np.errstate(all="ignore"):
        return rounding.bf16(x @ weight.T)
