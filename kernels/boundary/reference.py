"""K1 in float64 with the kernel's rounding points, and nothing else in common with it.

Rounding points: R' to bf16; u to bf16; the sum of squares to fp32 (it can overflow there: then x is 0); x to bf16.
The kernel adds five products in fp32, so where they cancel its result can be off by a few 2**-24 of their magnitudes: the
reference states that as an interval, whose ends are rounded like the value itself.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]
SUM_SLACK = 5 * 2.0**-24  # five roundings of fp32, relative to the sum of magnitudes
NORM_SLACK = 2.0**-20  # rsqrt to 2 ulp, half the error of the sum of squares, two products: 6e-7 at worst


@dataclass(frozen=True)
class Interval:
    """A value and the least and greatest results that fp32 arithmetic may give."""

    value: F64
    low: F64
    high: F64


@dataclass(frozen=True)
class Boundary:
    """residual [T,4,H], x [T,H]; q codes [T,H] and scale bytes [T,H/32] of x's value."""

    residual: Interval
    x: Interval
    q: NDArray[np.uint8]
    scale: NDArray[np.uint8]


def _rounded(exact: F64, slack: F64) -> Interval:
    value = rounding.bf16(exact)
    sure = np.isfinite(exact) & np.isfinite(slack)
    return Interval(
        value, np.where(sure, rounding.bf16(exact - slack), value), np.where(sure, rounding.bf16(exact + slack), value)
    )


def boundary(
    y: F64 | None, residual: F64, post: F64 | None, comb: F64 | None, pre: F64 | None, weight: F64, eps: float
) -> Boundary:
    """y [T,H], residual [T,4,H], post [T,4], comb [T,4,4], pre [T,4], weight [H]; y None: no post; pre None: u is stream 0."""
    with np.errstate(all="ignore"):
        streams = Interval(residual, residual, residual)
        if y is not None:
            assert post is not None and comb is not None
            exact = post[:, :, None] * y[:, None, :] + np.einsum("tji,tjh->tih", comb, residual)
            size = np.abs(post[:, :, None] * y[:, None, :]) + np.einsum("tji,tjh->tih", np.abs(comb), np.abs(residual))
            streams = _rounded(exact, SUM_SLACK * size)
        r = streams.value
        u = Interval(r[:, 0], r[:, 0], r[:, 0])
        if pre is not None:
            u = _rounded(np.einsum("tk,tkh->th", pre, r), SUM_SLACK * np.einsum("tk,tkh->th", np.abs(pre), np.abs(r)))
        # A stream sum at a tie of bf16 may round either way, which moves the row's mean as well.
        squares = np.stack([u.low * u.low, u.value * u.value, u.high * u.high])
        totals = np.stack([squares.min(0), squares[1], squares.max(0)]).sum(-1, keepdims=True)
        high, middle, low = weight / np.sqrt(rounding.f32(totals) / r.shape[-1] + np.float64(np.float32(eps)))
        ends = np.stack([u.low * low, u.low * high, u.high * low, u.high * high])
        ends = np.stack([ends.min(0) - NORM_SLACK * np.abs(ends).max(0), ends.max(0) + NORM_SLACK * np.abs(ends).max(0)])
        x = Interval(rounding.bf16(u.value * middle), rounding.bf16(ends[0]), rounding.bf16(ends[1]))
        q, scale = rounding.quantise(x.value)
    return Boundary(streams, x, q, scale)
