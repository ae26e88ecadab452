"""K1 beside SGLang's post + combine-norm (with and without its MXFP8 epilogue), torch.compile and eager."""

from __future__ import annotations

import torch

from ..common.bench import Case
from ..common.shapes import HIDDEN, RMS_EPS
from ..launch import Launch
from ..peers import sglang
from . import ops
from .test_boundary import inputs, outputs

COPIES = 80  # 10 KB a copy: they stay in L2 for ours and the peers alike


def eager(y, residual, post, comb, pre, weight):
    """What the model's reference does, in torch."""
    rows = (post[:, :, None] * y.float()[:, None] + torch.einsum("tji,tjh->tih", comb, residual.float())).bfloat16()
    u = torch.einsum("tk,tkh->th", pre, rows.float()).bfloat16()
    return rows, torch.nn.functional.rms_norm(u, (HIDDEN,), weight, RMS_EPS)


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count."""
    v = inputs(rows, seed=1, device=device)
    weights = [v["weight"].clone() for _ in range(COPIES)]
    out = outputs(rows, device)

    def ours(layout: int, launch: Launch | None):
        return lambda i: ops.run(
            v["y"], v["residual"], v["post"], v["comb"], v["pre"], weights[i], RMS_EPS, layout, *out, launch=launch
        )

    def case(name, kind, launches, call, note=""):
        return Case("K1 boundary", rows, name, kind, launches, call, COPIES, note)

    found = [
        case("ours bf16", "ours", 1, ours(-1, None)),
        case("ours bf16+fp8", "ours", 1, ours(0, None)),
        *(
            case(f"ours bf16+fp8 cluster {c} pdl {p}", "ours", 1, ours(0, Launch(rows, c, bool(p))))
            for c in (1, 2, 4, 5)
            for p in (0, 1)
        ),
    ]
    post, norm = sglang.triton_module("mhc_post_split_h"), sglang.triton_module("hc_combine_norm")
    if post and norm:

        def stock(i):
            r = post.mhc_post_split_h(v["y"], v["residual"], v["post"], v["comb"])
            return norm.hc_combine_norm(r.flatten(1), v["pre"], weights[i], RMS_EPS)

        def quantised(i):
            r = post.mhc_post_split_h(v["y"], v["residual"], v["post"], v["comb"])
            return norm.hc_combine_norm_mxfp8(r.flatten(1), v["pre"], weights[i], RMS_EPS)

        found += [
            case("sglang post, combine+norm", "sglang", 2, stock),
            case(
                "sglang post, combine+norm+mxfp8",
                "sglang",
                3,
                quantised,
                "zeroes its scales by a memset; its Blackwell path, run here",
            ),
        ]
    if compiled:
        fast = torch.compile(eager, dynamic=False)
        found.append(
            case(
                "torch.compile bf16",
                "torch",
                2,
                lambda i: fast(v["y"], v["residual"], v["post"], v["comb"], v["pre"], weights[i]),
            )
        )
    found.append(
        case("torch eager bf16", "torch", 12, lambda i: eager(v["y"], v["residual"], v["post"], v["comb"], v["pre"], weights[i]))
    )
    return found
