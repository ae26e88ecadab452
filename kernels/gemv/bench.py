"""K6 beside cuBLAS on a bf16 copy (what SGLang runs on Hopper) and beside an 8-bit peer, torch's scaled FP8 product."""

from __future__ import annotations

import torch

from ..common.bench import Case, copies_past_l2
from ..launch import Launch
from ..peers import sglang
from . import ops
from .test_gemv import inputs

SHAPES = {
    "wq_b": (32768, 1280),
    "wo_b": (5120, 8192),
    "wq_b TP4": (8192, 1280),
    "wo_b TP4": (5120, 2048),
    "shared up": (4608, 5120),
    "shared down": (5120, 2304),
}


def _of_shape(rows: int, device: torch.device, label: str, n: int, k: int) -> list[Case]:
    v = inputs(rows, n, k, seed=1, device=device, scale=0.1)
    copies = copies_past_l2(n * k)
    weights = [(v["codes"].clone(), v["scales"].clone()) for _ in range(copies)]
    out = torch.empty(rows, n, dtype=torch.bfloat16, device=device)
    dense = [torch.randn(n, k, device=device, dtype=torch.bfloat16) * 0.02 for _ in range(max(2, copies // 2))]
    padded = torch.zeros(16, k, device=device).to(torch.float8_e4m3fn)
    row_scale, column_scale = torch.ones(16, 1, device=device), torch.ones(1, n, device=device)

    def ours(launch):
        return lambda i: ops.run(v["x"], *weights[i], out, launch=launch)

    def case(name, kind, call, note="", launches=1, size=copies):
        return Case(f"K6 {label} [{n},{k}]", rows, name, kind, launches, call, size, note)

    def scaled(i):
        return torch._scaled_mm(padded, weights[i][0].t(), row_scale, column_scale, out_dtype=torch.bfloat16)

    sms = torch.cuda.get_device_properties(device).multi_processor_count
    found = [
        case("ours", "ours", ours(None)),
        case("ours, no dependent launch", "ours", ours(Launch(sms, pdl=False))),
        case("cuBLAS bf16", "torch", lambda i: torch.nn.functional.linear(v["x"], dense[i]), "what SGLang runs", size=len(dense)),
        case("torch scaled fp8, 16 rows", "torch", scaled, "another scaling (a row, a column); x quantised before, not timed"),
    ]
    library = sglang.cuda_library()
    if library and rows == 1 and k % 512 == 0:

        def stock(i):
            stream = torch.cuda.current_stream().cuda_stream
            code = library.peer_gemv(v["x"].data_ptr(), dense[i].data_ptr(), out.data_ptr(), n, k, stream)
            if code != 0:
                raise RuntimeError(f"the peer's GEMV returned {code}")

        found.append(case("sglang bf16 GEMV", "sglang", stock, "its one-row kernel", size=len(dense)))
    return found


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count, TP1 and TP4 shapes."""
    return [case for label, (n, k) in SHAPES.items() for case in _of_shape(rows, device, label, n, k)]
