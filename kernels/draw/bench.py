"""The sampler beside torch's own steps (sort, cumulative sum, multinomial), the whole vocabulary."""

from __future__ import annotations

import torch

from ..common.bench import Case
from . import ops
from .test_draw import SEED, TAG, VOCABULARY, inputs


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """One row count; logits warm in L2, where the head leaves them."""
    v = inputs(rows, VOCABULARY, device=device)
    out = torch.empty(rows, dtype=torch.int32, device=device)
    v[1].fill_(1.0)

    def ours(top_k, top_p):
        given = [*v[:2], torch.full_like(v[2], top_p), torch.full_like(v[3], top_k), *v[4:]]
        return lambda i: ops.run(*given, SEED, TAG, out)

    def eager(i):
        ordered, ids = v[0].float().sort(descending=True)
        p = ordered.softmax(-1)
        p = torch.where(p.cumsum(-1) - p < 0.95, p, 0.0)
        return ids.gather(1, (p / torch.empty_like(p).exponential_()).argmax(-1, keepdim=True))

    def case(name, kind, launches, call, note=""):
        return Case("matched-draw sampler", rows, name, kind, launches, call, 1, note)

    return [
        case("ours, temperature", "ours", 1, ours(0, 1.0)),
        case("ours, temperature, top-p", "ours", 1, ours(0, 0.95)),
        case("ours, temperature, top-k, top-p", "ours", 1, ours(40, 0.95)),
        case("torch eager, top-p", "torch", 12, eager, "another random stream, the same distribution"),
    ]
