"""K1 in float64 with the kernel's rounding points, and nothing else in common with it.

Rounding points: R' to bf16; u to bf16; the sum of squares to fp32 (it can overflow there: then x is 0); x to bf16.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Boundary:
    """residual [T,4,H], x [T,H] (values), q codes [T,H] and scale bytes [T,H/32] of x."""

    residual: F64
    x: F64
    q: NDArray[np.uint8]
    scale: NDArray[np.uint8]


def boundary(
    y: F64 | None, residual: F64, post: F64 | None, comb: F64 | None, pre: F64 | None, weight: F64, eps: float
) -> Boundary:
    """y [T,H], residual [T,4,H], post [T,4], comb [T,4,4], pre [T,4], weight [H]; y None: no post; pre None: u is stream 0."""
    with np.errstate(all="ignore"):
        if y is not None:
            assert post is not None and comb is not None
            residual = rounding.bf16(post[:, :, None] * y[:, None, :] + np.einsum("tji,tjh->tih", comb, residual))
        u = residual[:, 0] if pre is None else rounding.bf16(np.einsum("tk,tkh->th", pre, residual))
        mean = rounding.f32((u * u).sum(-1, keepdims=True)) / u.shape[-1]
        x = rounding.bf16(u / np.sqrt(mean + np.float64(np.float32(eps))) * weight)
        q, scale = rounding.quantise(x)
    return Boundary(residual, x, q, scale)
