"""K1 as torch operators: ``b300kit::boundary`` allocates its outputs, ``b300kit::boundary_out`` writes given ones."""

import torch

from ..common import checks, context, rounding, tensors
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..common.shapes import BOUNDARY_ROWS, HIDDEN, STREAMS
from ..launch import Launch
from . import reference

OP = "boundary"
NO_QUANT, ROW_MAJOR, TILED = -1, 0, 1


def scale_bytes(rows: int, scale_layout: int, width: int = HIDDEN) -> int:
    """Bytes of the scales of ``rows`` rows: row-major [rows, width/32], or padded to 128x4 tiles."""
    groups = width // 32
    if scale_layout == NO_QUANT:
        return 0
    return rows * groups if scale_layout == ROW_MAJOR else -(-rows // 128) * -(-groups // 4) * 512


def run(
    y: torch.Tensor | None,
    residual: torch.Tensor,
    post: torch.Tensor | None,
    comb: torch.Tensor | None,
    pre: torch.Tensor | None,
    weight: torch.Tensor,
    eps: float,
    scale_layout: int,
    out_residual: torch.Tensor,
    out_x: torch.Tensor,
    out_q: torch.Tensor,
    out_scale: torch.Tensor,
    launch: Launch | None = None,
) -> None:
    """One launch on the current stream.

    y [T,5120] bf16 or None; residual [T,4,5120] bf16; post [T,4], comb [T,4,4], pre [T,4] fp32 (pre None: the model's first
    sublayer); weight [5120] bf16. Outputs: residual like the input (unused, any shape, when y is None), x [T,5120] bf16; with
    scale_layout 0 (row-major) or 1 (128x4 tiles, places of absent rows untouched) also q [T,5120] e4m3 and scale bytes.
    Raises ArgumentError (argument, expected, found), UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "residual", residual)
    rows = checks.row_count(OP, "residual", residual, BOUNDARY_ROWS)
    bf16, f32 = torch.bfloat16, torch.float32
    if scale_layout not in (NO_QUANT, ROW_MAJOR, TILED):
        raise ArgumentError(OP, "scale_layout", "-1 (none), 0 (row-major) or 1 (128x4 tiles)", str(scale_layout))
    if not eps >= 0.0:
        raise ArgumentError(OP, "eps", "a number of at least 0", str(eps))
    address: dict[str, int | None] = {
        "y": None,
        "post": None,
        "comb": None,
        "pre": None,
        "out_residual": None,
        "q": None,
        "scale": None,
    }
    address["residual"] = checks.tensor(OP, "residual", residual, bf16, (rows, STREAMS, HIDDEN), device)
    address["weight"] = checks.tensor(OP, "weight", weight, bf16, (HIDDEN,), device)
    address["x"] = checks.tensor(OP, "out_x", out_x, bf16, (rows, HIDDEN), device)
    if y is not None:
        if post is None or comb is None:
            raise ArgumentError(OP, "post" if post is None else "comb", "a tensor, since y is given", "None")
        address["y"] = checks.tensor(OP, "y", y, bf16, (rows, HIDDEN), device)
        address["post"] = checks.tensor(OP, "post", post, f32, (rows, STREAMS), device)
        address["comb"] = checks.tensor(OP, "comb", comb, f32, (rows, STREAMS, STREAMS), device)
        address["out_residual"] = checks.tensor(OP, "out_residual", out_residual, bf16, (rows, STREAMS, HIDDEN), device)
        checks.no_overlap(OP, "out_residual", out_residual, "residual", residual)
        checks.no_overlap(OP, "out_x", out_x, "y", y)
    if pre is not None:
        address["pre"] = checks.tensor(OP, "pre", pre, f32, (rows, STREAMS), device)
    checks.no_overlap(OP, "out_x", out_x, "residual", residual)
    if scale_layout != NO_QUANT:
        address["q"] = checks.tensor(OP, "out_q", out_q, torch.float8_e4m3fn, (rows, HIDDEN), device)
        address["scale"] = checks.tensor(OP, "out_scale", out_scale, torch.uint8, (scale_bytes(rows, scale_layout),), device)
    choice = context.launch_for(OP, rows, device, launch)
    a = address
    code = library().b300k_boundary(
        a["y"], a["residual"], a["post"], a["comb"], a["pre"], a["weight"], a["out_residual"], a["x"], a["q"], a["scale"],
        rows, eps, max(scale_layout, 0), choice.cluster, choice.blocks, int(choice.pdl), context.stream_of(device),
    )  # fmt: skip
    check(OP, code)


def _empty(
    y: torch.Tensor | None, residual: torch.Tensor, scale_layout: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    rows, quant = residual.shape[0], scale_layout != NO_QUANT
    return (
        torch.empty_like(residual) if y is not None else residual.new_empty(0),
        residual.new_empty(rows, HIDDEN),
        residual.new_empty((rows, HIDDEN) if quant else (0,), dtype=torch.float8_e4m3fn),
        # Tiles hold places of rows that are not there: zeros, as a block-scaled MMA reads whole tiles.
        residual.new_zeros(scale_bytes(rows, scale_layout), dtype=torch.uint8),
    )


_ARGUMENTS = "Tensor? y, Tensor residual, Tensor? post, Tensor? comb, Tensor? pre, Tensor weight, float eps, int scale_layout"


@torch.library.custom_op(
    "b300kit::boundary", mutates_args=(), device_types="cuda", schema=f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor, Tensor)"
)
def boundary(y, residual, post, comb, pre, weight, eps, scale_layout):
    """Returns (residual', x, q, scale bytes); q and scale are empty without quantisation, residual' is empty when y is None."""
    out = _empty(y, residual, scale_layout)
    run(y, residual, post, comb, pre, weight, eps, scale_layout, *out)
    return out


@boundary.register_fake
def _(y, residual, post, comb, pre, weight, eps, scale_layout):
    return _empty(y, residual, scale_layout)


@boundary.register_kernel("cpu")
def _(y, residual, post, comb, pre, weight, eps, scale_layout):
    t = tensors
    result = reference.boundary(t.f64(y), t.need(residual), t.f64(post), t.f64(comb), t.f64(pre), t.need(weight), eps)
    out_residual = t.to_bf16(result.residual.value) if y is not None else residual.new_empty(0)
    if scale_layout == NO_QUANT:
        return (
            out_residual,
            t.to_bf16(result.x.value),
            residual.new_empty(0, dtype=torch.float8_e4m3fn),
            residual.new_empty(0, dtype=torch.uint8),
        )
    scale = result.scale.reshape(-1) if scale_layout == ROW_MAJOR else rounding.tiled_scales(result.scale)
    return out_residual, t.to_bf16(result.x.value), t.codes(result.q), torch.from_numpy(scale.copy())


_OUTPUTS = "Tensor(a!) out_residual, Tensor(b!) out_x, Tensor(c!) out_q, Tensor(d!) out_scale"


@torch.library.custom_op(
    "b300kit::boundary_out",
    mutates_args=("out_residual", "out_x", "out_q", "out_scale"),
    device_types="cuda",
    schema=f"({_ARGUMENTS}, {_OUTPUTS}) -> ()",
)
def boundary_out(y, residual, post, comb, pre, weight, eps, scale_layout, out_residual, out_x, out_q, out_scale):
    """Like ``boundary`` into given memory: no allocation."""
    run(y, residual, post, comb, pre, weight, eps, scale_layout, out_residual, out_x, out_q, out_scale)


@boundary_out.register_fake
def _(y, residual, post, comb, pre, weight, eps, scale_layout, out_residual, out_x, out_q, out_scale):
    return None
