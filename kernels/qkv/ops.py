"""K3 as a torch operator: ``b300kit::qkv`` allocates q and its codes and writes into the given paged cache."""

from dataclasses import dataclass

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


@dataclass(frozen=True)
class RowArguments:
    """What K3 and K3b do with a row of qkv, checked: addresses and numbers in the order of the C interface."""

    given: tuple[int, ...]  # q_weight, kv_weight, cos_sin, positions, slots
    outputs: tuple[int | None, ...]  # q, q8, q scale, cache
    cache_slots: int
    numbers: tuple[int, ...]  # positions_are_64, layout, page_bits, page_bytes, max_position, scale_layout


def row_arguments(
    op: str,
    rows: int,
    device: torch.device,
    q_weight: torch.Tensor,
    kv_weight: torch.Tensor,
    cos_sin: torch.Tensor,
    positions: torch.Tensor,
    slots: torch.Tensor,
    cache: torch.Tensor,
    layout: str,
    page_size: int,
    scale_layout: int,
    out_q: torch.Tensor,
    out_q8: torch.Tensor,
    out_q_scale: torch.Tensor,
) -> RowArguments:
    """Checks them (shapes as in ``run``); raises ArgumentError."""
    if layout not in _LAYOUTS:
        raise ArgumentError(op, "layout", f"one of {_LAYOUTS}", repr(layout))
    if page_size < 1 or page_size > 4096 or page_size & (page_size - 1):
        raise ArgumentError(op, "page_size", "a power of two from 1 to 4096", str(page_size))
    if scale_layout not in (NO_QUANT, ROW_MAJOR, TILED):
        raise ArgumentError(op, "scale_layout", "-1 (none), 0 (row-major) or 1 (128x4 tiles)", str(scale_layout))
    if positions.dtype not in (torch.int32, torch.int64):
        raise ArgumentError(op, "positions", "dtype torch.int32 or torch.int64", str(positions.dtype))
    if cos_sin.dim() != 2 or cache.dim() != 2:
        name, found = ("cos_sin", cos_sin) if cos_sin.dim() != 2 else ("cache", cache)
        raise ArgumentError(op, name, "two dimensions", f"shape {tuple(found.shape)}")
    bf16, pages, page_bytes = torch.bfloat16, cache.shape[0], kv_page_bytes(layout, page_size)
    given = (
        checks.tensor(op, "q_weight", q_weight, bf16, (Q_LORA,), device),
        checks.tensor(op, "kv_weight", kv_weight, bf16, (KV,), device),
        checks.tensor(op, "cos_sin", cos_sin, torch.float32, (cos_sin.shape[0], ROPE), device),
        checks.tensor(op, "positions", positions, positions.dtype, (rows,), device),
        checks.tensor(op, "slots", slots, torch.int32, (rows,), device),
    )
    q = checks.tensor(op, "out_q", out_q, bf16, (rows, Q_LORA), device)
    q8 = scale = None
    if scale_layout != NO_QUANT:
        q8 = checks.tensor(op, "out_q8", out_q8, torch.float8_e4m3fn, (rows, Q_LORA), device)
        scale = checks.tensor(op, "out_q_scale", out_q_scale, torch.uint8, (scale_bytes(rows, scale_layout),), device)
    pool = checks.tensor(op, "cache", cache, torch.uint8, (pages, page_bytes), device)
    numbers = (
        int(positions.dtype == torch.int64), _LAYOUTS.index(layout), page_size.bit_length() - 1, page_bytes, cos_sin.shape[0],
        max(scale_layout, 0),
    )  # fmt: skip
    return RowArguments(given, (q, q8, scale, pool), pages * page_size, numbers)


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
    given = (q_weight, kv_weight, cos_sin, positions, slots, cache, layout, page_size, scale_layout)
    a = row_arguments(OP, rows, device, *given, out_q, out_q8, out_q_scale)
    address = checks.tensor(OP, "qkv", qkv, torch.bfloat16, (rows, Q_LORA + KV), device)
    checks.no_overlap(OP, "out_q", out_q, "qkv", qkv)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_qkv(
        address,
        *a.given,
        *a.outputs,
        a.cache_slots,
        rows,
        eps,
        *a.numbers,
        choice.blocks,
        int(choice.pdl),
        context.stream_of(device),
    )
    check(OP, code)


def empty(qkv: torch.Tensor, scale_layout: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, its codes and scale bytes for as many rows as ``qkv`` (or another bf16 tensor) has; the last two empty without."""
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
    out = empty(qkv, scale_layout)
    run(qkv, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout, *out)
    return out


@qkv.register_fake
def _(qkv, q_weight, kv_weight, cos_sin, positions, slots, cache, eps, layout, page_size, scale_layout):
    return empty(qkv, scale_layout)


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
