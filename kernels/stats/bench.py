"""K2 beside SGLang's two- and three-launch forms, torch.compile and eager; W rotated past L2."""

from __future__ import annotations

import torch

from ..common.bench import Case, copies_past_l2
from ..common.shapes import HC_EPS, RMS_EPS, SINKHORN_STEPS
from ..launch import STATS_ITEMS, Launch
from ..peers import sglang
from . import ops
from .test_stats import inputs, outputs


def eager(residual, weight, scale, base):
    """What the model's reference does, in torch."""
    flat = residual.flatten(1).float()
    mix = (flat @ weight.T) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + RMS_EPS)
    pre = torch.sigmoid(mix[:, :4] * scale[0] + base[:4]) + HC_EPS
    post = 2 * torch.sigmoid(mix[:, 4:8] * scale[1] + base[4:8])
    c = torch.softmax((mix[:, 8:] * scale[2] + base[8:]).view(-1, 4, 4), -1) + HC_EPS
    c = c / (c.sum(-2, keepdim=True) + HC_EPS)
    for _ in range(SINKHORN_STEPS - 1):
        c = c / (c.sum(-1, keepdim=True) + HC_EPS)
        c = c / (c.sum(-2, keepdim=True) + HC_EPS)
    return pre, post, c


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count."""
    v = inputs(rows, seed=1, device=device)
    copies = copies_past_l2(v["weight"].numel() * 4)
    weights = [v["weight"].clone() for _ in range(copies)]
    out = outputs(rows, device)

    def ours(launch):
        return lambda i: ops.run(v["residual"], weights[i], v["scale"], v["base"], RMS_EPS, HC_EPS, *out, launch=launch)

    def case(name, kind, launches, call, note=""):
        return Case("K2 stats", rows, name, kind, launches, call, copies, note)

    alone = Launch(STATS_ITEMS, pdl=False)

    def one_step(i):
        ops.run(v["residual"], weights[i], v["scale"], v["base"], RMS_EPS, HC_EPS, *out, launch=alone, steps=1)

    found = [
        case("ours", "ours", 1, ours(None)),
        case("ours, no dependent launch", "ours", 1, ours(alone)),
        case("ours, one Sinkhorn step", "ours", 1, one_step, "no dependent launch; the difference is what 19 steps cost"),
    ]
    mhc = sglang.triton_module("mhc")
    if mhc:

        def two(i):
            return mhc.hc_mix_stats_sinkhorn(
                v["residual"].flatten(1), weights[i], v["scale"], v["base"], 4, SINKHORN_STEPS, RMS_EPS, HC_EPS
            )

        def three(i):
            mixes = mhc.hc_mix_stats(v["residual"].flatten(1), weights[i], RMS_EPS).unsqueeze(1)
            return mhc._hc_split_sinkhorn_triton(mixes, v["scale"], v["base"], 4, SINKHORN_STEPS, HC_EPS)

        found += [
            case("sglang mix, reduce+sinkhorn", "sglang", 2, two, "its path on Blackwell, and on Hopper at T=1"),
            case(
                "sglang mix, reduce, sinkhorn", "sglang", 3, three, "Hopper T=2-31, with its Triton Sinkhorn for its TileLang one"
            ),
        ]
    if compiled:
        fast = torch.compile(eager, dynamic=False)
        found.append(case("torch.compile", "torch", 4, lambda i: fast(v["residual"], weights[i], v["scale"], v["base"])))
    slow = lambda i: eager(v["residual"], weights[i], v["scale"], v["base"])  # noqa: E731
    found.append(case("torch eager", "torch", 100, slow))
    return found
