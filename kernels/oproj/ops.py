"""K5 as a torch operator: ``b300kit::oproj``."""

import torch

from ..common import checks, context, rounding, tensors
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..common.shapes import HEAD, O_GROUP_K, O_LORA, ROPE
from ..gemv.ops import weight_addresses
from ..gemv.reference import values
from ..launch import GEMV_ROWS, Launch
from . import reference

OP = "oproj"
NO_QUANT, ROW_MAJOR, TILED = -1, 0, 1


def scale_bytes(rows: int, n: int, scale_layout: int) -> int:
    """Bytes of y's scales: n/32 a row, or padded to 128x4 tiles."""
    if scale_layout == NO_QUANT:
        return 0
    return rows * (n // 32) if scale_layout == ROW_MAJOR else -(-rows // 128) * -(-n // 128) * 512


def run(
    o: torch.Tensor,
    weight: torch.Tensor,
    scales: torch.Tensor | None,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    scale_layout: int,
    out_y: torch.Tensor,
    out_y8: torch.Tensor,
    out_scale: torch.Tensor,
    launch: Launch | None = None,
) -> None:
    """One launch on the current stream.

    o [T,heads,512] bf16, T <= 8; weight [groups*1024,4096] (groups = heads/8) bf16 with scales None, or float8_e4m3fn with
    scales [groups*32,128] uint8 that have passed ``gemv.ops.check_weights``; cos_sin [P,64] fp32; positions [T] int32 or
    int64. y [T,groups*1024] bf16; with scale_layout 0 or 1 also y8 float8_e4m3fn of that shape and its scale bytes. An empty
    out_y is not written. A position past the table gives NaN. Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "o", o)
    rows = checks.row_count(OP, "o", o, GEMV_ROWS)
    if scale_layout not in (NO_QUANT, ROW_MAJOR, TILED):
        raise ArgumentError(OP, "scale_layout", "-1 (none), 0 (row-major) or 1 (128x4 tiles)", str(scale_layout))
    if positions.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(OP, "positions", "dtype torch.int32 or torch.int64", str(positions.dtype))
    if o.dim() != 3 or o.shape[1] < 8 or o.shape[1] % 8:
        raise ArgumentError(OP, "o", "shape (rows, a multiple of 8 heads, 512)", f"shape {tuple(o.shape)}")
    if cos_sin.dim() != 2:
        raise ArgumentError(OP, "cos_sin", "two dimensions", f"shape {tuple(cos_sin.shape)}")
    groups = o.shape[1] // 8
    n = groups * O_LORA
    address = checks.tensor(OP, "o", o, torch.bfloat16, (rows, 8 * groups, HEAD), device)
    weights = weight_addresses(OP, weight, scales, n, O_GROUP_K, 32, device)
    table = checks.tensor(OP, "cos_sin", cos_sin, torch.float32, (cos_sin.shape[0], ROPE), device)
    places = checks.tensor(OP, "positions", positions, positions.dtype, (rows,), device)
    y = y8 = scale = None
    if out_y.numel() or scale_layout == NO_QUANT:
        y = checks.tensor(OP, "out_y", out_y, torch.bfloat16, (rows, n), device)
        checks.no_overlap(OP, "out_y", out_y, "o", o)
    if scale_layout != NO_QUANT:
        y8 = checks.tensor(OP, "out_y8", out_y8, torch.float8_e4m3fn, (rows, n), device)
        scale = checks.tensor(OP, "out_scale", out_scale, torch.uint8, (scale_bytes(rows, n, scale_layout),), device)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_oproj(
        address, *weights, table, places, y, y8, scale, rows, groups, int(positions.dtype == torch.int64), cos_sin.shape[0],
        max(scale_layout, 0), choice.blocks, int(choice.pdl), context.stream_of(device),
    )  # fmt: skip
    check(OP, code)


def _empty(o: torch.Tensor, scale_layout: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, n, quant = o.shape[0], o.shape[1] // 8 * O_LORA, scale_layout != NO_QUANT
    return (
        o.new_empty(rows, n),
        o.new_empty((rows, n) if quant else (0,), dtype=torch.float8_e4m3fn),
        o.new_zeros(scale_bytes(rows, n, scale_layout), dtype=torch.uint8),
    )


@torch.library.custom_op(
    "b300kit::oproj",
    mutates_args=(),
    device_types="cuda",
    schema="(Tensor o, Tensor weight, Tensor? scales, Tensor cos_sin, Tensor positions, int scale_layout) "
    "-> (Tensor, Tensor, Tensor)",
)
def oproj(o, weight, scales, cos_sin, positions, scale_layout):
    """Returns (y, y codes, y scale bytes), the last two empty without quantisation."""
    out = _empty(o, scale_layout)
    run(o, weight, scales, cos_sin, positions, scale_layout, *out)
    return out


@oproj.register_fake
def _(o, weight, scales, cos_sin, positions, scale_layout):
    return _empty(o, scale_layout)


@oproj.register_kernel("cpu")
def _(o, weight, scales, cos_sin, positions, scale_layout):
    w = tensors.need(weight) if scales is None else values(weight.view(torch.uint8).numpy(), scales.numpy())
    y = reference.project(tensors.need(o), tensors.need(cos_sin)[positions.numpy()], w.reshape(-1, O_LORA, O_GROUP_K))
    if scale_layout == NO_QUANT:
        return tensors.to_bf16(rounding.bf16(y)), *_empty(o, NO_QUANT)[1:]
    codes, scale = reference.quantise(y)
    flat = scale.reshape(-1) if scale_layout == ROW_MAJOR else rounding.tiled_scales(scale)
    return tensors.to_bf16(rounding.bf16(y)), tensors.codes(codes), torch.from_numpy(flat.copy())
