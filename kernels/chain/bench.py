"""The boundary chain of a sublayer: K1 then K2, in line or with the statistics on a side stream, ours and SGLang's.

The sublayer's stand-in is its first two projections as torch runs them (wqkv_a [1792,5120], wq_b [32768,1280], bf16, cold).
"beyond the sublayer" is a figure less the stand-in's own.
"""

from __future__ import annotations

import torch

from ..boundary import ops as k1
from ..boundary.test_boundary import inputs as boundary_inputs
from ..boundary.test_boundary import outputs as boundary_outputs
from ..common.bench import Case
from ..common.shapes import HC_EPS, RMS_EPS, SINKHORN_STEPS
from ..launch import STATS_ITEMS, Launch, choose
from ..peers import sglang
from ..stats import ops as k2
from ..stats.test_stats import inputs as stats_inputs

COPIES = 60


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count."""
    from ..common.context import gpu

    v = boundary_inputs(rows, seed=1, device=device)
    s = stats_inputs(1, seed=2, device=device)
    weights = [s["weight"].clone() for _ in range(COPIES)]
    norms = [v["weight"].clone() for _ in range(COPIES)]
    out = boundary_outputs(rows, device)
    out[0].copy_(v["residual"])
    pre, post, comb = v["pre"], v["post"], v["comb"]
    wqkv_a = [torch.randn(1792, 5120, device=device, dtype=torch.bfloat16) * 0.01 for _ in range(8)]
    wq_b = [torch.randn(32768, 1280, device=device, dtype=torch.bfloat16) * 0.01 for _ in range(3)]
    side = torch.cuda.Stream()
    plain = Launch(choose("boundary", rows, gpu(0)).blocks, choose("boundary", rows, gpu(0)).cluster, False)

    def boundary(i, launch=None, quant=-1):
        k1.run(v["y"], v["residual"], post, comb, pre, norms[i], RMS_EPS, quant, *out, launch=launch)

    def stats(i, launch=None):
        k2.run(out[0], weights[i], s["scale"], s["base"], RMS_EPS, HC_EPS, pre, post, comb, launch=launch)

    def sublayer(i, x):
        latent = torch.nn.functional.linear(x, wqkv_a[i % 8])
        return torch.nn.functional.linear(latent[:, :1280], wq_b[i % 3])

    def beside(i, first, second):
        main = torch.cuda.current_stream()
        x = first(i)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            kept = second(i)
        y = sublayer(i, x)
        main.wait_stream(side)
        return kept, y

    def case(kernel, name, kind, launches, call, note=""):
        return Case(kernel, rows, name, kind, launches, call, COPIES, note)

    def ours_first(i, launch=None):
        boundary(i, launch)
        return out[1]

    alone = Launch(STATS_ITEMS, pdl=False)
    line, whole = "boundary in line", "boundary + sublayer"
    found = [
        case(line, "ours K1, K2", "ours", 2, lambda i: (boundary(i), stats(i))),
        case(line, "ours K1, K2 with fp8", "ours", 2, lambda i: (boundary(i, quant=0), stats(i))),
        case(line, "ours, no dependent launch", "ours", 2, lambda i: (boundary(i, plain), stats(i, alone))),
        case(whole, "sublayer stand-in alone", "torch", 2, lambda i: sublayer(i, out[1])),
        case(whole, "ours in line", "ours", 4, lambda i: (boundary(i), stats(i), sublayer(i, out[1]))),
        case(
            whole, "ours, stats on a side stream", "ours", 4,
            lambda i: beside(i, lambda i: ours_first(i, plain), lambda i: stats(i, alone)),
        ),
    ]  # fmt: skip
    post_module, norm_module, mhc = (sglang.triton_module(n) for n in ("mhc_post_split_h", "hc_combine_norm", "mhc"))
    if not (post_module and norm_module and mhc):
        return found
    holder = {}

    def their_first(i):
        holder["r"] = post_module.mhc_post_split_h(v["y"], v["residual"], post, comb)
        return norm_module.hc_combine_norm(holder["r"].flatten(1), pre, norms[i], RMS_EPS)

    def their_stats(i):
        flat = holder["r"].flatten(1)
        return mhc.hc_mix_stats_sinkhorn(flat, weights[i], s["scale"], s["base"], 4, SINKHORN_STEPS, RMS_EPS, HC_EPS)

    def their_line(i):
        return their_first(i), their_stats(i)

    def their_whole(i):
        x = their_first(i)
        return their_stats(i), sublayer(i, x)

    return [
        *found,
        case(line, "sglang post, norm, stats", "sglang", 4, their_line),
        case(whole, "sglang in line", "sglang", 6, their_whole),
        case(whole, "sglang, stats on a side stream", "sglang", 6, lambda i: beside(i, their_first, their_stats)),
    ]
