"""K3 as a torch operator: ``b300kit::qkv`` allocates q and its codes and writes into the given paged cache."""

import torch

from ..common import checks, context, rounding, tensors
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..common.shapes import KV, KV_LAYOUTS, Q_LORA, QKV_ROWS, ROPE, kv_page_bytes
from ..launch import Launch
from . import reference

OP = "qkv"
NO_QUANT, ROW_MAJOR, TILED = -1, 0, 1
_LAYOUTS = ("v4", "v41")


def scale_bytes(rows: int, scale_layout: int) -> int:
    """Bytes of q's scales: 40 a row, or padded to 128x4 tiles."""
    if scale_layout == NO_QUANT:
        return 0
    return rows * (Q_LORA // 32) if scale_layout == ROW_MAJOR else -(-rows // 128) * (Q_LORA // 128) * 512


def run(
    qkv: torch.Tensor,
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
) -> None:
    """One launch on the current stream.

    qkv [T,1792] bf16; q_weight [1280], kv_weight [512] bf16; cos_sin [P,64] fp32; positions [T] int32 or int64; slots [T]
    int32 (below 0: this row has no slot); cache [pages, page bytes] uint8 in ``layout`` "v4" or "v41"; page_size a power of
    two. Outputs q [T,1280] bf16, and with scale_layout 0 or 1 q8 [T,1280] e4m3 and scale bytes. A slot past the cache is not
    written, a position past the table gives NaN in the rope dims. Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "qkv", qkv)
    rows = checks.row_count(OP, "qkv", qkv, QKV_ROWS)
    if layout not in _LAYOUTS:
        raise ArgumentError(OP, "layout", f"one of {_LAYOUTS}", repr(layout))
    if page_size < 1 or page_size > 4096 or page_size & (page_size - 1):
        raise ArgumentError(OP, "page_size", "a power of two from 1 to 4096", str(page_size))
    if scale_layout not in (NO_QUANT, ROW_MAJOR, TILED):
        raise ArgumentError(OP, "scale_layout", "-1 (none), 0 (row-major) or 1 (128x4 tiles)", str(scale_layout))
    if positions.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(OP, "positions", "dtype torch.int32 or torch.int64", str(positions.dtype))
    if cos_sin.dim() != 2 or cache.dim() != 2:
        name, found = ("cos_sin", cos_sin) if cos_sin.dim() != 2 else ("cache", cache)
        raise ArgumentError(OP, name, "two dimensions", f"shape {tuple(found.shape)}")
    bf16, pages, page_bytes = torch.bfloat16, cache.shape[0], kv_page_bytes(layout, page_size)
    addresses = [
        checks.tensor(OP, "qkv", qkv, bf16, (rows, Q_LORA + KV), device),
        checks.tensor(OP, "q_weight", q_weight, bf16, (Q_LORA,), device),
        checks.tensor(OP, "kv_weight", kv_weight, bf16, (KV,), device),
        checks.tensor(OP, "cos_sin", cos_sin, torch.float32, (cos_sin.shape[0], ROPE), device),
        checks.tensor(OP, "positions", positions, positions.dtype, (rows,), device),
        checks.tensor(OP, "slots", slots, torch.int32, (rows,), device),
        checks.tensor(OP, "out_q", out_q, bf16, (rows, Q_LORA), device),
    ]
    quant = scale_layout != NO_QUANT
    q8 = checks.tensor(OP, "out_q8", out_q8, torch.float8_e4m3fn, (rows, Q_LORA), device) if quant else None
    scale = (
        checks.tensor(OP, "out_q_scale", out_q_scale, torch.uint8, (scale_bytes(rows, scale_layout),), device) if quant else None
    )
    pool = checks.tensor(OP, "cache", cache, torch.uint8, (pages, page_bytes), device)
    checks.no_overlap(OP, "out_q", out_q, "qkv", qkv)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_qkv(
        *addresses, q8, scale, pool, pages * page_size, rows, eps, int(positions.dtype == torch.int64), _LAYOUTS.index(layout),
        page_size.bit_length() - 1, page_bytes, cos_sin.shape[0], max(scale_layout, 0), choice.blocks, int(choice.pdl),
        context.stream_of(device),
    )  # fmt: skip
    check(OP, code)


def _empty(qkv: torch.Tensor, scale_layout: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, quant = qkv.shape[0], scale_layout != NO_QUANT
    return (
        qkv.new_empty(rows, Q_LORA),
        qkv.new_empty((rows, Q_LORA) if quant else (0,), dtype=torch.float8_e4m3fn),
        qkv.new_zeros(scale_bytes(rows, scale_layout), dtype=torch.uint8),
    )


@torch.library.custom_op(
    "b300kit::qkv",
    mutates_args=("cache",),
    device_types="cuda",
    schema="(Tensor qkv, Tensor q_weight, Tensor kv_weight, Tensor cos_sin, Tensor positions, Tensor slots, Tensor(a!) cache, "
    "float eps, str layout, int page_size, int scale_layout) -> (Tensor, Tensor, Tensor)",
)
def qkv(qkv, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    """Writes the cache rows; returns (q, q codes, q scale bytes), the last two empty without quantisation."""
    out = _empty(qkv, scale_layout)
    run(qkv, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout, *out)
    return out


@qkv.register_fake
def _(qkv, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    return _empty(qkv, scale_layout)


@qkv.register_kernel("cpu")
def _(qkv, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    value = tensors.need(qkv)
    q, codes, scales = reference.query(value[:, :Q_LORA], tensors.need(q_weight), eps)
    rows = reference.kv_rows(value[:, Q_LORA:], tensors.need(kv_weight), tensors.need(cos_sin)[positions.numpy()], eps, layout)
    data_bytes, scale_row, _ = KV_LAYOUTS[layout]
    written = 7 if layout == "v4" else scale_row
    for row, slot in zip(rows, slots.tolist(), strict=True):
        if 0 <= slot < cache.shape[0] * page_size:
            page, at = cache[slot // page_size], slot % page_size
            page[at * data_bytes : (at + 1) * data_bytes] = torch.from_numpy(row.data)
            start = page_size * data_bytes + at * scale_row
            page[start : start + written] = torch.from_numpy(row.scale[:written])
    if scale_layout == NO_QUANT:
        return tensors.to_bf16(q), qkv.new_empty(0, dtype=torch.float8_e4m3fn), qkv.new_empty(0, dtype=torch.uint8)
    flat = scales.reshape(-1) if scale_layout == ROW_MAJOR else rounding.tiled_scales(scales)
    return tensors.to_bf16(q), tensors.codes(codes), torch.from_numpy(flat.copy())
