"""K6h as torch operators: ``b300kit::head`` (ids and their logits) and ``b300kit::head_logits`` (all logits beside them)."""

import torch

from ..common import checks, context, tensors, workspace
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..common.shapes import HIDDEN
from ..gemv.ops import weight_addresses
from ..launch import GEMV_ROWS, Launch
from . import reference

OP = "head"


def run(
    x: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None,
    out_ids: torch.Tensor,
    out_values: torch.Tensor,
    out_logits: torch.Tensor | None = None,
    launch: Launch | None = None,
    space: workspace.Workspace | None = None,
) -> None:
    """One launch on the current stream.

    x [T,5120] bf16, T <= 8; weight [V,5120] bf16 with scales None, or float8_e4m3fn with scales [V,160] uint8 (MXFP8) that
    have passed ``gemv.ops.check_weights``; V a multiple of 16. ids [T] int32, values [T] fp32, logits [T,V] bf16 when wanted.
    Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "x", x)
    rows = checks.row_count(OP, "x", x, GEMV_ROWS)
    if weight.dim() != 2 or weight.shape[0] < 16 or weight.shape[0] % 16:
        raise ArgumentError(OP, "weight", "shape (a multiple of 16, 5120)", f"shape {tuple(weight.shape)}")
    vocabulary = weight.shape[0]
    address = checks.tensor(OP, "x", x, torch.bfloat16, (rows, HIDDEN), device)
    weights = weight_addresses(OP, weight, scales, vocabulary, HIDDEN, 1, device)
    outputs = [
        checks.tensor(OP, "out_ids", out_ids, torch.int32, (rows,), device),
        checks.tensor(OP, "out_values", out_values, torch.float32, (rows,), device),
    ]
    logits = None
    if out_logits is not None:
        logits = checks.tensor(OP, "out_logits", out_logits, torch.bfloat16, (rows, vocabulary), device)
    stream = context.stream_of(device)
    space = space or workspace.shared(OP, GEMV_ROWS, device, stream)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_head(
        address,
        *weights,
        *outputs,
        logits,
        space.claim(rows, device, stream),
        rows,
        vocabulary,
        choice.blocks,
        int(choice.pdl),
        stream,
    )
    check(OP, code)


def _empty(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape[0], dtype=torch.int32), x.new_empty(x.shape[0], dtype=torch.float32)


def _on_cpu(x, weight, scales):
    w = tensors.need(weight) if scales is None else reference.values(weight.view(torch.uint8).numpy(), scales.numpy())
    logits = reference.logits(tensors.need(x), w)
    ids = torch.from_numpy(reference.argmax(logits))
    logits = tensors.to_bf16(logits)
    return ids, logits.float().gather(1, ids.long()[:, None])[:, 0], logits


@torch.library.custom_op(
    "b300kit::head", mutates_args=(), device_types="cuda", schema="(Tensor x, Tensor weight, Tensor? scales) -> (Tensor, Tensor)"
)
def head(x, weight, scales):
    """Returns (ids, their logits)."""
    out = _empty(x)
    run(x, weight, scales, *out)
    return out


@head.register_fake
def _(x, weight, scales):
    return _empty(x)


@head.register_kernel("cpu")
def _(x, weight, scales):
    return _on_cpu(x, weight, scales)[:2]


@torch.library.custom_op(
    "b300kit::head_logits",
    mutates_args=(),
    device_types="cuda",
    schema="(Tensor x, Tensor weight, Tensor? scales) -> (Tensor, Tensor, Tensor)",
)
def head_logits(x, weight, scales):
    """Returns (ids, their logits, all logits in bf16)."""
    ids, values = _empty(x)
    logits = x.new_empty(x.shape[0], weight.shape[0])
    run(x, weight, scales, ids, values, logits)
    return ids, values, logits


@head_logits.register_fake
def _(x, weight, scales):
    return (*_empty(x), x.new_empty(x.shape[0], weight.shape[0]))


@head_logits.register_kernel("cpu")
def _(x, weight, scales):
    return _on_cpu(x, weight, scales)
