"""K5 beside SGLang's inverse rope and wo_a (einsum; its one-row GEMV), TP1 and TP4; wo_a rotated past L2."""

from __future__ import annotations

import torch

from ..common.bench import Case, copies_past_l2
from ..common.shapes import HEAD, O_GROUP_K, O_GROUPS, O_LORA
from ..launch import Launch
from ..peers import sglang
from . import ops
from .test_oproj import inputs, outputs


def _of_groups(rows: int, device: torch.device, groups: int, label: str) -> list[Case]:
    v = {fp8: inputs(rows, groups, seed=1, device=device, fp8=fp8) for fp8 in (False, True)}
    copies = copies_past_l2(groups * O_LORA * O_GROUP_K)
    weights = {
        fp8: [(v[fp8]["weight"].clone(), None if not fp8 else v[fp8]["scales"].clone()) for _ in range(copies)] for fp8 in v
    }
    none, out = torch.empty(0, dtype=torch.bfloat16, device=device), outputs(v[True])
    sms = torch.cuda.get_device_properties(device).multi_processor_count

    def ours(fp8, quant, launch=None):
        # wo_b reads either the codes or bf16, never both.
        given = (0, none, *out[1:]) if quant else (-1, out[0], none, none)
        return lambda i: ops.run(v[fp8]["o"], *weights[fp8][i], v[fp8]["cos_sin"], v[fp8]["positions"], *given, launch=launch)

    def case(name, kind, launches, call, note=""):
        return Case(f"K5 rope + wo_a {label}", rows, name, kind, launches, call, copies, note)

    found = [
        case("ours bf16 +fp8 out", "ours", 1, ours(False, True)),
        case("ours bf16, bf16 out", "ours", 1, ours(False, False)),
        case("ours FP8 +fp8 out", "ours", 1, ours(True, True)),
        case("ours FP8, bf16 out", "ours", 1, ours(True, False)),
        case("ours FP8, no dependent launch", "ours", 1, ours(True, True, Launch(sms, pdl=False))),
        case("ours bf16, no dependent launch", "ours", 1, ours(False, True, Launch(sms, pdl=False))),
    ]
    library, module = sglang.cuda_library(), sglang.triton_module("dsv4_wo_a")
    o = v[False]["o"].clone()

    def turn():
        stream = torch.cuda.current_stream().cuda_stream
        pointers = (o.data_ptr(), v[False]["cos_sin"].data_ptr(), v[False]["positions"].data_ptr())
        if library.peer_turn_back(*pointers, rows, groups * 8, stream) != 0:
            raise RuntimeError("the peer's rope was not launched")

    def einsum(i, rope):
        if rope:
            turn()
        x = o.view(rows, groups, 8 * HEAD)
        return torch.einsum("tgd,grd->tgr", x, weights[False][i][0].view(groups, O_LORA, O_GROUP_K))

    def one_row(i):
        turn()
        return module.wo_a_bf16_gemv(o.view(1, groups, 8 * HEAD), weights[False][i][0].view(groups, O_LORA, O_GROUP_K))

    found.append(case("einsum alone", "torch", 1, lambda i: einsum(i, False), "no rope, no quantisation"))
    if library:
        note = "what it runs on Hopper; bf16 out, no quantisation"
        found.append(case("sglang rope, einsum", "sglang", 2, lambda i: einsum(i, True), note))
        if module and rows == 1:
            found.append(case("sglang rope, one-row GEMV", "sglang", 2, one_row, note))
    return found


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count."""
    return [*_of_groups(rows, device, O_GROUPS, "TP1"), *_of_groups(rows, device, O_GROUPS // 4, "TP4")]
