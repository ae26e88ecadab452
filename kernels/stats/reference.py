"""K2 in float64, the Sinkhorn as the model states it: the matrix itself is divided, row by row and column by column."""

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]


def _sigmoid(x: F64) -> F64:
    return 1.0 / (1.0 + np.exp(-x))


def sinkhorn(logits: F64, steps: int, eps: float) -> F64:
    """logits [T,4,4] -> C [T,4,4]: row softmax + eps, columns, then steps-1 times rows and columns; axis 1 is the row."""
    power = np.exp(logits - logits.max(-1, keepdims=True))
    c = power / power.sum(-1, keepdims=True) + eps
    c = c / (c.sum(-2, keepdims=True) + eps)
    for _ in range(steps - 1):
        c = c / (c.sum(-1, keepdims=True) + eps)
        c = c / (c.sum(-2, keepdims=True) + eps)
    return c


def stats(residual: F64, weight: F64, scale: F64, base: F64, rms_eps: float, hc_eps: float, steps: int) -> tuple[F64, F64, F64]:
    """residual [T,4,H], weight [24,4H], scale [3], base [24] -> pre [T,4], post [T,4], comb [T,4,4].

    The sum of squares is rounded to fp32, where huge inputs overflow; everything else is float64.
    """
    flat = residual.reshape(residual.shape[0], residual.shape[1] * residual.shape[2])
    rms_eps, hc_eps = float(np.float32(rms_eps)), float(np.float32(hc_eps))
    with np.errstate(all="ignore"):
        mean = rounding.f32((flat * flat).sum(-1, keepdims=True)) / flat.shape[1]
        mix = (flat @ weight.T) / np.sqrt(mean + rms_eps)
        logits = np.concatenate([mix[:, :4] * scale[0], mix[:, 4:8] * scale[1], mix[:, 8:] * scale[2]], -1) + base
        pre, post = _sigmoid(logits[:, :4]) + hc_eps, 2.0 * _sigmoid(logits[:, 4:8])
        return pre, post, sinkhorn(logits[:, 8:].reshape(-1, 4, 4), steps, hc_eps)
