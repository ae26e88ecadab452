"""K5 in float64: the rope turned back, wo_a group by group, E4M3 codes."""

import numpy as np
from numpy.typing import NDArray

from ..common import rounding
from ..common.shapes import HEAD, ROPE

F64 = NDArray[np.float64]
U8 = NDArray[np.uint8]


def turn_back(o: F64, angles: F64) -> F64:
    """o [T,heads,512], angles [T,64] (cos, sin interleaved) -> o with the last 64 dims turned back, bf16 values."""
    with np.errstate(all="ignore"):
        cos, sin = angles[:, None, 0::2], angles[:, None, 1::2]
        real, imaginary = o[..., HEAD - ROPE :: 2], o[..., HEAD - ROPE + 1 :: 2]
        turned = np.stack([real * cos + imaginary * sin, imaginary * cos - real * sin], -1).reshape(*o.shape[:-1], ROPE)
        return np.concatenate([o[..., : HEAD - ROPE], rounding.bf16(turned)], -1)


def project(o: F64, angles: F64, weight: F64) -> F64:
    """o [T,heads,512], W [groups,1024,K] (exact values) -> y [T,groups*1024], not rounded."""
    x = turn_back(o, angles).reshape(len(o), weight.shape[0], weight.shape[2])
    with np.errstate(all="ignore"):
        return np.einsum("tgk,grk->tgr", x, weight).reshape(len(o), weight.shape[0] * weight.shape[1])


def quantise(y: F64) -> tuple[U8, U8]:
    """Codes and scale bytes of the bf16-rounded y, per 32."""
    return rounding.quantise(rounding.bf16(y))
