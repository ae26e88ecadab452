"""K4 in float64: logits, sqrt-softplus scores, a stable top-k, weights, packed ids."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..common import rounding

F64 = NDArray[np.float64]


@dataclass(frozen=True)
class Routing:
    """weights [T,6], ids [T,6], logits [T,E]; gap [T]: smallest difference between neighbours of the ranking that matters."""

    weights: F64
    ids: NDArray[np.int32]
    logits: F64
    gap: F64


def scores(logits: F64) -> F64:
    """sqrt(log1p(exp l)), sqrt(l) above 20."""
    with np.errstate(all="ignore"):
        return np.sqrt(np.where(logits > 20.0, logits, np.log1p(np.exp(np.minimum(logits, 20.0)))))


def route(x: F64, weight: F64, bias: F64, valid_rows: int | None, top: int, scale: float, logits: F64 | None = None) -> Routing:
    """x [T,H], weight [E,H], bias [E]. ``logits`` given: the ranking of exactly these, without the GEMV.

    Ties go to the lowest id, a NaN ranks as +infinity; rows at or past ``valid_rows`` are padding.
    """
    with np.errstate(all="ignore"):
        if logits is None:
            logits = x @ weight.T
        score = scores(logits)
        biased = score + bias
        ranked = np.where(np.isnan(biased), np.inf, biased)
        order = np.argsort(-ranked, axis=-1, kind="stable")
        ids = order[:, :top].astype(np.int32)
        sorted_values = np.take_along_axis(ranked, order, -1)[:, : top + 1]
        steps = sorted_values[:, :-1] - sorted_values[:, 1:]
        gap = np.where(np.isnan(steps), 0.0, steps).min(-1)
        chosen = np.take_along_axis(score, ids.astype(np.int64), -1)
        weights = chosen / (chosen.sum(-1, keepdims=True) + 1e-20) * scale
    if valid_rows is not None:
        dead = np.arange(len(ids)) >= valid_rows
        weights, ids = np.where(dead[:, None], 0.0, weights), np.where(dead[:, None], -1, ids).astype(np.int32)
    return Routing(weights, ids, logits, gap)


def pack(ids: NDArray[np.int32], weights: F64) -> NDArray[np.int32]:
    """id << 16 | bf16 bits of the weight."""
    bits = (rounding.bf16(weights).astype(np.float32).view(np.uint32) >> 16).astype(np.uint32)
    return (ids.astype(np.uint32) << np.uint32(16) | bits).view(np.int32)
