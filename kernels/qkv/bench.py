"""K3 beside SGLang's q norm (plain, or with its MXFP8 epilogue) and kv norm/rope/insert."""

from __future__ import annotations

import torch

from ..common.bench import Case
from ..common.shapes import Q_LORA, RMS_EPS
from ..launch import Launch
from ..peers import sglang
from . import ops
from .test_qkv import PAGE, inputs, outputs

COPIES = 40


def _of_layout(rows: int, device: torch.device, number: int, layout: str) -> list[Case]:
    v = inputs(rows, seed=1, device=device, layout=layout)
    weights = [(v["q_weight"].clone(), v["kv_weight"].clone()) for _ in range(COPIES)]
    out = outputs(rows, device)
    rest = (v["cos_sin"], v["positions"], v["slots"], v["cache"])

    def ours(scale_layout, launch):
        return lambda i: ops.run(v["qkv"], *weights[i], *rest, RMS_EPS, layout, PAGE, scale_layout, *out, launch=launch)

    def case(name, kind, launches, call, note=""):
        return Case(f"K3 qkv {layout}", rows, name, kind, launches, call, COPIES, note)

    found = [
        case("ours", "ours", 1, ours(-1, None)),
        case("ours +fp8", "ours", 1, ours(0, None)),
        case("ours +fp8, no dependent launch", "ours", 1, ours(0, Launch(2 * rows, pdl=False))),
    ]
    library, norm = sglang.cuda_library(), sglang.triton_module("rmsnorm_mxfp8")
    if not (library and norm):
        return found

    def check(code):
        if code != 0:
            raise RuntimeError(f"a peer's launch returned {code}")

    def kv(i):
        pointers = (v["qkv"].data_ptr(), weights[i][1].data_ptr(), *(t.data_ptr() for t in rest))
        check(library.peer_kv(*pointers, rows, RMS_EPS, number, torch.cuda.current_stream().cuda_stream))

    def stock(i):
        stream = torch.cuda.current_stream().cuda_stream
        check(library.peer_q_norm(v["qkv"].data_ptr(), weights[i][0].data_ptr(), out[0].data_ptr(), rows, RMS_EPS, stream))
        kv(i)

    def quantised(i):
        norm.rmsnorm_mxfp8(v["qkv"][:, :Q_LORA], weights[i][0], RMS_EPS)
        kv(i)

    return [
        *found,
        case("sglang q norm, kv", "sglang", 2, stock, "both with dependent launch, as it does"),
        case("sglang q norm+mxfp8, kv", "sglang", 2, quantised, "its Blackwell path, run here"),
    ]


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count, both cache layouts. torch has no counterpart of the paged insert worth timing."""
    return [case for number, layout in enumerate(("v4", "v41")) for case in _of_layout(rows, device, number, layout)]
