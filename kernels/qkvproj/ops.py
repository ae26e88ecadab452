"""K3b as a torch operator: ``b300kit::qkvproj`` allocates q and its codes and writes into the given paged cache."""

import torch

from ..common import checks, context, tensors, workspace
from ..common.library import check, library
from ..common.shapes import HIDDEN, KV, Q_LORA
from ..gemv.ops import weight_addresses
from ..gemv.reference import values
from ..launch import GEMV_ROWS, Launch
from ..qkv import ops as k3
from . import reference

OP = "qkvproj"


def run(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None,
    q_weight: torch.Tensor,
    kv_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    eps: float,
    layout: str,
    page_size: int,
    scale_layout: int,
    out_q: torch.Tensor,
    out_q8: torch.Tensor,
    out_q_scale: torch.Tensor,
    launch: Launch | None = None,
    space: workspace.Workspace | None = None,
) -> None:
    """Two launches on the current stream.

    x [T,5120] bf16, T <= 8; weight [1792,5120] bf16 with scales None, or float8_e4m3fn with scales [56,160] uint8 that have
    passed ``gemv.ops.check_weights``; the rest as qkv.ops.run. Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "x", x)
    rows = checks.row_count(OP, "x", x, GEMV_ROWS)
    given = (q_weight, kv_weight, cos_sin, positions, slots, cache, layout, page_size, scale_layout)
    a = k3.row_arguments(OP, rows, device, *given, out_q, out_q8, out_q_scale)
    address = checks.tensor(OP, "x", x, torch.bfloat16, (rows, HIDDEN), device)
    weights = weight_addresses(OP, weight, scales, Q_LORA + KV, HIDDEN, 32, device)
    checks.no_overlap(OP, "out_q", out_q, "x", x)
    stream = context.stream_of(device)
    space = space or workspace.shared(OP, GEMV_ROWS, device, stream)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_qkvproj(
        address, *weights, *a.given, *a.outputs, space.claim(rows, device, stream), a.cache_slots, rows, eps, *a.numbers,
        choice.blocks, int(choice.pdl), stream,
    )  # fmt: skip
    check(OP, code)


def scratch(space: workspace.Workspace, rows: int) -> torch.Tensor:
    """qkv [T,1792] bf16 of the last launch with this workspace (for tests)."""
    size = rows * (Q_LORA + KV) * 2
    return space.buffer[:size].view(torch.bfloat16).view(rows, Q_LORA + KV)


@torch.library.custom_op(
    "b300kit::qkvproj",
    mutates_args=("cache",),
    device_types="cuda",
    schema="(Tensor x, Tensor weight, Tensor? scales, Tensor q_weight, Tensor kv_weight, Tensor cos_sin, Tensor positions, "
    "Tensor slots, Tensor(a!) cache, float eps, str layout, int page_size, int scale_layout) -> (Tensor, Tensor, Tensor)",
)
def qkvproj(x, weight, scales, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    """Writes the cache rows; returns (q, q codes, q scale bytes), the last two empty without quantisation."""
    out = k3.empty(x, scale_layout)
    run(x, weight, scales, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout, *out)
    return out


@qkvproj.register_fake
def _(x, weight, scales, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    return k3.empty(x, scale_layout)


@qkvproj.register_kernel("cpu")
def _(x, weight, scales, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    w = tensors.need(weight) if scales is None else values(weight.view(torch.uint8).numpy(), scales.numpy())
    qkv = tensors.to_bf16(reference.project(tensors.need(x), w))
    rest = (q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout)
    return torch.ops.b300kit.qkv(qkv, *rest)
