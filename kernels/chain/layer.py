"""The decode chain of a layer: all that is neither attention nor expert, in order, as one graph; ours beside SGLang's.

boundary, statistics, wqkv_a with norms, rope and paged insert, wq_b | inverse rope and wo_a, wo_b, boundary, statistics, gate.
At the bar attention's output is a tensor that is there. All in line, on one stream (what target verify on Hopper does; SGLang's
decode of one row may put the statistics on a second one). Ours reads 8-bit weights, SGLang on Hopper a bf16 copy.
"""

from __future__ import annotations

from typing import Any

import torch

from ..boundary import ops as k1
from ..boundary.test_boundary import inputs as boundary_inputs
from ..boundary.test_boundary import outputs as boundary_outputs
from ..common.bench import Case
from ..common.shapes import HC_EPS, RMS_EPS, ROUTE_SCALE, SINKHORN_STEPS, TOP
from ..gate import ops as k4
from ..gate.test_gate import inputs as gate_inputs
from ..gate.test_gate import outputs as gate_outputs
from ..gemv import ops as k6
from ..oproj import ops as k5
from ..oproj.test_oproj import inputs as oproj_inputs
from ..peers import sglang
from ..qkv.test_qkv import PAGE
from ..qkv.test_qkv import outputs as qkv_outputs
from ..qkvproj import ops as k3b
from ..qkvproj.test_qkvproj import inputs as qkv_inputs
from ..stats import ops as k2
from ..stats.test_stats import inputs as stats_inputs
from .budget import Span, budget, short_name

LAYERS = 4  # of weights: each layer's are far past L2


def _weights(device: torch.device, n: int, k: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    codes = torch.randint(0, 120, (n, k), device=device, dtype=torch.uint8)
    scales = torch.randint(112, 116, (n // 32, k // 32), device=device, dtype=torch.uint8)
    return codes.view(torch.float8_e4m3fn), scales, torch.randn(n, k, device=device, dtype=torch.bfloat16) * 0.01


def calls(rows: int, device: torch.device) -> dict[str, tuple[int, Any]]:
    """name -> (launches of a layer, call(layer)) for ours and, where the peers are, SGLang's."""
    v, g = boundary_inputs(rows, seed=1, device=device), gate_inputs(rows, seed=2, device=device)
    s, q = stats_inputs(1, seed=3, device=device), qkv_inputs(rows, seed=4, device=device, layout="v41")
    o = oproj_inputs(rows, 8, seed=5, device=device)
    w = [
        {"qkv": _weights(device, 1792, 5120), "q": _weights(device, 32768, 1280), "oa": _weights(device, 8192, 4096),
         "ob": _weights(device, 5120, 8192), "gate": g["weight"].clone(), "norm": v["weight"].clone(), "mix": s["weight"].clone()}
        for _ in range(LAYERS)
    ]  # fmt: skip
    bf16 = torch.bfloat16
    out, routed, latent = boundary_outputs(rows, device), gate_outputs(rows, device), qkv_outputs(rows, device)
    out[0].copy_(v["residual"])
    heads, low = torch.empty(rows, 32768, dtype=bf16, device=device), torch.empty(rows, 8192, dtype=bf16, device=device)
    y, none = v["y"], torch.empty(0, dtype=bf16, device=device)
    pre, post, comb = v["pre"], v["post"], v["comb"]
    rest = tuple(q[n] for n in ("q_weight", "kv_weight", "cos_sin", "positions", "slots", "cache"))

    def boundary(i: int) -> None:
        k1.run(y, v["residual"], post, comb, pre, w[i]["norm"], RMS_EPS, -1, *out)
        k2.run(out[0], w[i]["mix"], s["scale"], s["base"], RMS_EPS, HC_EPS, pre, post, comb)

    def ours(i: int) -> None:
        boundary(i)
        k3b.run(out[1], *w[i]["qkv"][:2], *rest, RMS_EPS, "v41", PAGE, -1, latent[0], none, none)
        k6.run(latent[0], *w[i]["q"][:2], heads)
        k5.run(o["o"], *w[i]["oa"][:2], o["cos_sin"], o["positions"], -1, low, none, none)
        k6.run(low, *w[i]["ob"][:2], y)
        boundary(i)
        k4.run(out[1], w[i]["gate"], g["bias"], None, ROUTE_SCALE, *routed)

    found: dict[str, tuple[int, Any]] = {"ours": (10, ours)}
    library = sglang.cuda_library()
    modules = [sglang.triton_module(n) for n in ("mhc_post_split_h", "hc_combine_norm", "mhc", "moe_fused_gate")]
    if not library or not all(modules):
        return found
    post_module, norm_module, mhc, router = modules
    qkv, logits = torch.empty(rows, 1792, dtype=bf16, device=device), torch.empty(rows, 384, device=device)
    packed, turned = torch.empty(rows, TOP, dtype=torch.int32, device=device), o["o"].clone()

    def check(code: int) -> None:
        if code != 0:
            raise RuntimeError(f"a peer's launch returned {code}")

    def their_boundary(i: int) -> torch.Tensor:
        residual = post_module.mhc_post_split_h(y, v["residual"], post, comb)
        x = norm_module.hc_combine_norm(residual.flatten(1), pre, w[i]["norm"], RMS_EPS)
        mhc.hc_mix_stats_sinkhorn(residual.flatten(1), w[i]["mix"], s["scale"], s["base"], 4, SINKHORN_STEPS, RMS_EPS, HC_EPS)
        return x

    def theirs(i: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        x = their_boundary(i)
        if rows == 1:
            check(library.peer_gemv(x.data_ptr(), w[i]["qkv"][2].data_ptr(), qkv.data_ptr(), 1792, 5120, stream))
        else:
            torch.mm(x, w[i]["qkv"][2].t(), out=qkv)
        check(library.peer_q_norm(qkv.data_ptr(), rest[0].data_ptr(), latent[0].data_ptr(), rows, RMS_EPS, stream))
        check(library.peer_kv(qkv.data_ptr(), *(t.data_ptr() for t in rest[1:]), rows, RMS_EPS, 1, stream))
        torch.mm(latent[0], w[i]["q"][2].t(), out=heads)
        check(library.peer_turn_back(turned.data_ptr(), o["cos_sin"].data_ptr(), o["positions"].data_ptr(), rows, 64, stream))
        a = torch.einsum("tgd,grd->tgr", turned.view(rows, 8, 4096), w[i]["oa"][2].view(8, 1024, 4096))
        torch.mm(a.reshape(rows, 8192), w[i]["ob"][2].t(), out=y)
        x = their_boundary(i)
        check(library.peer_gate_gemm(x.data_ptr(), w[i]["gate"].data_ptr(), logits.data_ptr(), rows, stream))
        router.moe_fused_gate(
            logits, g["bias"], TOP, "sqrtsoftplus", renormalize=True, routed_scaling_factor=ROUTE_SCALE,
            apply_routed_scaling_factor_on_output=True, renormalize_epsilon=1e-20, packed_out=packed, sqrtsoftplus_log1p=True,
        )  # fmt: skip

    found["sglang"] = (0, theirs)
    return found


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """Both chains for one row count; us is of one layer. SGLang's launches are counted by ``timelines``."""
    note = "in line; see the timeline for its launches"
    return [
        Case(
            "decode chain of a layer",
            rows,
            name,
            "ours" if name == "ours" else "sglang",
            launches,
            call,
            LAYERS,
            "" if launches else note,
        )
        for name, (launches, call) in calls(rows, device).items()
    ]


def timelines(rows: int, device: torch.device) -> dict[str, Any]:
    """name -> the kernel budget of a layer, from the profiler's timeline of one replay of a graph of all layers."""
    from torch.profiler import ProfilerActivity, profile

    result = {}
    for name, (_, call) in calls(rows, device).items():
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            for i in range(LAYERS):
                call(i)
            stream.synchronize()
            with torch.cuda.graph(graph, stream=stream):
                for i in range(LAYERS):
                    call(i)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            graph.replay()
            torch.cuda.synchronize()
        spans = [
            Span(short_name(event.name), event.time_range.start, event.time_range.end)
            for event in seen.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and "graph" not in event.name.lower()
        ]
        result[name] = budget(spans, LAYERS)
    return result
