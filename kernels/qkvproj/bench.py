"""K3b beside SGLang's three (its one-row GEMV or cuBLAS, q norm, kv norm/rope/insert); the weight rotated past L2."""

from __future__ import annotations

import torch

from ..common.bench import Case, copies_past_l2
from ..common.shapes import HIDDEN, KV, Q_LORA, RMS_EPS
from ..gemv import ops as k6
from ..launch import Launch
from ..peers import sglang
from ..qkv import ops as k3
from ..qkv.test_qkv import PAGE, outputs
from . import ops
from .test_qkvproj import inputs

ROW = Q_LORA + KV


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count, v41 layout."""
    v = {fp8: inputs(rows, seed=1, device=device, layout="v41", fp8=fp8) for fp8 in (False, True)}
    copies = copies_past_l2(ROW * HIDDEN)
    weights = {
        fp8: [(v[fp8]["weight"].clone(), None if not fp8 else v[fp8]["scales"].clone()) for _ in range(copies)] for fp8 in v
    }
    out = outputs(rows, device)
    rest = tuple(v[False][n] for n in ("q_weight", "kv_weight", "cos_sin", "positions", "slots", "cache"))
    qkv = torch.empty(rows, ROW, dtype=torch.bfloat16, device=device)
    sms = torch.cuda.get_device_properties(device).multi_processor_count

    def ours(fp8, launch=None):
        return lambda i: ops.run(v[fp8]["x"], *weights[fp8][i], *rest, RMS_EPS, "v41", PAGE, 0, *out, launch=launch)

    def apart(i):
        k6.run(v[True]["x"], *weights[True][i], qkv)
        k3.run(qkv, *rest, RMS_EPS, "v41", PAGE, 0, *out)

    def case(name, kind, launches, call, note=""):
        return Case("K3b wqkv_a + qkv v41", rows, name, kind, launches, call, copies, note)

    found = [
        case("ours bf16 +fp8 q", "ours", 1, ours(False)),
        case("ours bf16, no dependent launch", "ours", 1, ours(False, Launch(sms, pdl=False))),
        case("ours FP8 +fp8 q", "ours", 1, ours(True)),
        case("ours FP8, no dependent launch", "ours", 1, ours(True, Launch(sms, pdl=False))),
        case("ours FP8, apart (K6, K3)", "ours", 2, apart),
        case("ours FP8, K6 alone", "ours", 1, lambda i: k6.run(v[True]["x"], *weights[True][i], qkv), "no norm, no insert"),
        case("cuBLAS bf16 alone", "torch", 1, lambda i: torch.nn.functional.linear(v[False]["x"], weights[False][i][0])),
    ]
    library = sglang.cuda_library()
    if not library:
        return found

    def check(code):
        if code != 0:
            raise RuntimeError(f"a peer's launch returned {code}")

    def stock(i, one_row):
        stream, x, w = torch.cuda.current_stream().cuda_stream, v[False]["x"], weights[False][i][0]
        if one_row:
            check(library.peer_gemv(x.data_ptr(), w.data_ptr(), qkv.data_ptr(), ROW, HIDDEN, stream))
        else:
            torch.mm(x, w.t(), out=qkv)
        check(library.peer_q_norm(qkv.data_ptr(), rest[0].data_ptr(), out[0].data_ptr(), rows, RMS_EPS, stream))
        check(library.peer_kv(qkv.data_ptr(), *(t.data_ptr() for t in rest[1:]), rows, RMS_EPS, 1, stream))

    note = "what it runs on Hopper; q is not quantised"
    if rows == 1:
        found.append(case("sglang GEMV, q norm, kv", "sglang", 3, lambda i: stock(i, True), note))
    return [*found, case("cuBLAS, sglang q norm, kv", "sglang", 3, lambda i: stock(i, False), note)]
