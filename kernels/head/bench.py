"""K6h beside what SGLang runs (cuBLAS, then torch's argmax) and torch.compile."""

from __future__ import annotations

import torch

from ..common.bench import Case
from ..common.shapes import HIDDEN, VOCABULARY
from ..common.testing import bf16_values, generator
from ..launch import Launch
from . import ops

COPIES = 2  # each far past L2


def _mx(vocabulary: int, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    codes = torch.randint(0, 256, (vocabulary, HIDDEN), device=device, dtype=torch.uint8)
    codes[(codes & 0x7F) == 0x7F] = 0x7E
    return codes.view(torch.float8_e4m3fn), torch.randint(112, 120, (vocabulary, HIDDEN // 32), device=device, dtype=torch.uint8)


def _of_shape(rows: int, device: torch.device, vocabulary: int, label: str, compiled: bool) -> list[Case]:
    x = bf16_values(generator(1), rows, HIDDEN).to(device)
    dense = [torch.randn(vocabulary, HIDDEN, device=device, dtype=torch.bfloat16) for _ in range(COPIES)]
    mx = [_mx(vocabulary, device) for _ in range(COPIES)]
    ids, values = torch.empty(rows, dtype=torch.int32, device=device), torch.empty(rows, device=device)
    logits = torch.empty(rows, vocabulary, dtype=torch.bfloat16, device=device)
    plain = Launch(torch.cuda.get_device_properties(device).multi_processor_count, pdl=False)
    padded = torch.zeros(16, HIDDEN, device=device).to(torch.float8_e4m3fn)
    row_scale, column_scale = torch.ones(16, 1, device=device), torch.ones(1, vocabulary, device=device)

    def eager(i):
        return torch.nn.functional.linear(x, dense[i]).argmax(-1)

    def scaled(i):
        return torch._scaled_mm(padded, mx[i][0].t(), row_scale, column_scale, out_dtype=torch.bfloat16)[:rows].argmax(-1)

    def case(name, kind, launches, call, note=""):
        return Case(f"K6h lm_head + argmax {label}", rows, name, kind, launches, call, COPIES, note)

    found = [
        case("ours bf16", "ours", 1, lambda i: ops.run(x, dense[i], None, ids, values)),
        case("ours bf16, no dependent launch", "ours", 1, lambda i: ops.run(x, dense[i], None, ids, values, launch=plain)),
        case("ours bf16, logits too", "ours", 1, lambda i: ops.run(x, dense[i], None, ids, values, logits)),
        case("ours MXFP8", "ours", 1, lambda i: ops.run(x, *mx[i], ids, values)),
        case("cuBLAS, argmax", "torch", 2, eager, "what SGLang runs"),
        case("torch scaled fp8, argmax", "torch", 2, scaled, "another scaling (a row, a column); x quantised before, not timed"),
    ]
    if compiled:
        fast = torch.compile(
            lambda weight: torch.nn.functional.linear(x, weight).argmax(-1), dynamic=False, mode="max-autotune-no-cudagraphs"
        )
        found.append(case("torch.compile", "torch", 2, lambda i: fast(dense[i])))
    return found


def cases(rows: int, device: torch.device, compiled: bool) -> list[Case]:
    """All contenders for one row count: the whole vocabulary, and a TP4 shard of it."""
    return [
        *_of_shape(rows, device, VOCABULARY, "TP1", compiled),
        *_of_shape(rows, device, VOCABULARY // 4, "TP4", compiled),
    ]
