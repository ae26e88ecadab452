"""K4 beside SGLang's gate GEMM + router, and torch; the gate's weight rotated past L2."""

from __future__ import annotations

import torch

from ..common.bench import Case, copies_past_l2
from ..common.shapes import EXPERTS, ROUTE_SCALE, TOP
from ..launch import GATE_PARTS, Launch
from ..peers import sglang
from . import ops
from .test_gate import inputs, outputs


def eager(x, weight, bias):
    """Routing in torch: fp32 logits, softplus scores, top-k."""
    score = torch.nn.functional.softplus(torch.nn.functional.linear(x, weight).float()).sqrt()
    ids = (score + bias).topk(TOP).indices
    chosen = score.gather(1, ids)
    return chosen / (chosen.sum(-1, keepdim=True) + 1e-20) * ROUTE_SCALE, ids


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count."""
    v = inputs(rows, seed=1, device=device)
    copies = copies_past_l2(v["weight"].numel() * 2)
    weights = [v["weight"].clone() for _ in range(copies)]
    out = outputs(rows, device)

    def ours(launch):
        return lambda i: ops.run(v["x"], weights[i], v["bias"], None, ROUTE_SCALE, *out, launch=launch)

    def case(name, kind, launches, call, note=""):
        return Case("K4 gate", rows, name, kind, launches, call, copies, note)

    found = [
        case("ours", "ours", 1, ours(None)),
        case("ours, no dependent launch", "ours", 1, ours(Launch(GATE_PARTS, 8, False))),
    ]
    library, router = sglang.cuda_library(), sglang.triton_module("moe_fused_gate")
    if library and router:
        logits = torch.empty(rows, EXPERTS, dtype=torch.float32, device=device)
        packed = torch.empty(rows, TOP, dtype=torch.int32, device=device)

        def stock(i):
            stream = torch.cuda.current_stream().cuda_stream
            code = library.peer_gate_gemm(v["x"].data_ptr(), weights[i].data_ptr(), logits.data_ptr(), rows, stream)
            if code != 0:
                raise RuntimeError(f"gate GEMM returned {code}")
            return router.moe_fused_gate(
                logits, v["bias"], TOP, "sqrtsoftplus", renormalize=True, routed_scaling_factor=ROUTE_SCALE,
                apply_routed_scaling_factor_on_output=True, renormalize_epsilon=1e-20, packed_out=packed, sqrtsoftplus_log1p=True,
            )  # fmt: skip

        found.append(case("sglang gate GEMM, router", "sglang", 2, stock, "both with dependent launch, as it does"))
    if compiled:
        fast = torch.compile(eager, dynamic=False)
        found.append(case("torch.compile", "torch", 4, lambda i: fast(v["x"], weights[i], v["bias"])))
    found.append(case("torch eager", "torch", 12, lambda i: eager(v["x"], weights[i], v["bias"])))
    return found
