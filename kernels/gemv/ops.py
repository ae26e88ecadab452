"""K6 as torch operators: ``b300kit::gemv`` allocates its output, ``b300kit::gemv_out`` writes a given one."""

import torch

from ..common import checks, context, tensors
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..launch import GEMV_ROWS, Launch, gemv_fits
from . import reference

OP = "gemv"
MAX_SCALE = 134  # 2**7: far above any checkpoint's, and the sums stay within fp32


def check_weights(codes: torch.Tensor, scales: torch.Tensor) -> None:
    """Once, when weights are loaded: refuses NaN codes and scales over 2**7. Synchronises."""
    nan = int(((codes.view(torch.uint8) & 0x7F) == 0x7F).sum())
    if nan:
        raise ArgumentError(OP, "codes", "E4M3 codes without NaN", f"{nan} NaN codes")
    largest = int(scales.view(torch.uint8).max())
    if largest > MAX_SCALE:
        raise ArgumentError(OP, "scales", f"scale bytes up to {MAX_SCALE} (2^7)", f"{largest}")


def weight_addresses(
    op: str, weight: torch.Tensor, scales: torch.Tensor | None, n: int, k: int, block: int, device: torch.device
) -> tuple[int, int | None]:
    """Addresses of W [n,k]: bf16 with ``scales`` None, else E4M3 with scales [n/block,k/32]. Raises ArgumentError."""
    if scales is None:
        return checks.tensor(op, "weight", weight, torch.bfloat16, (n, k), device), None
    return (
        checks.tensor(op, "weight", weight, torch.float8_e4m3fn, (n, k), device),
        checks.tensor(op, "scales", scales, torch.uint8, (n // block, k // 32), device),
    )


def run(
    x: torch.Tensor,
    codes: torch.Tensor,
    scales: torch.Tensor,
    out: torch.Tensor,
    launch: Launch | None = None,
) -> None:
    """One launch on the current stream.

    x [T,K] bf16, T <= 8, |x| < 2^80; codes [N,K] float8_e4m3fn; scales [N/32,K/32] uint8; out [T,N] bf16. N a multiple of
    32, K one of launch.GEMV_K. The weights have passed ``check_weights``.
    Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "x", x)
    rows = checks.row_count(OP, "x", x, GEMV_ROWS)
    if x.dim() != 2 or codes.dim() != 2:
        name, found = ("x", x) if x.dim() != 2 else ("codes", codes)
        raise ArgumentError(OP, name, "two dimensions", f"shape {tuple(found.shape)}")
    n, k = codes.shape
    try:
        gemv_fits(n, k)
    except ValueError as error:
        raise ArgumentError(OP, "codes", str(error), f"shape {(n, k)}") from error
    addresses = [
        checks.tensor(OP, "x", x, torch.bfloat16, (rows, k), device),
        checks.tensor(OP, "codes", codes, torch.float8_e4m3fn, (n, k), device),
        checks.tensor(OP, "scales", scales, torch.uint8, (n // 32, k // 32), device),
        checks.tensor(OP, "out", out, torch.bfloat16, (rows, n), device),
    ]
    checks.no_overlap(OP, "out", out, "x", x)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_gemv(*addresses, rows, n, k, choice.blocks, int(choice.pdl), context.stream_of(device))
    check(OP, code)


@torch.library.custom_op(
    "b300kit::gemv", mutates_args=(), device_types="cuda", schema="(Tensor x, Tensor codes, Tensor scales) -> Tensor"
)
def gemv(x, codes, scales):
    """x W^T in bf16."""
    out = x.new_empty(x.shape[0], codes.shape[0])
    run(x, codes, scales, out)
    return out


@gemv.register_fake
def _(x, codes, scales):
    return x.new_empty(x.shape[0], codes.shape[0])


@gemv.register_kernel("cpu")
def _(x, codes, scales):
    from ..common import rounding

    return tensors.to_bf16(rounding.bf16(reference.gemv(tensors.need(x), codes.view(torch.uint8).numpy(), scales.numpy())))


@torch.library.custom_op(
    "b300kit::gemv_out",
    mutates_args=("out",),
    device_types="cuda",
    schema="(Tensor x, Tensor codes, Tensor scales, Tensor(a!) out) -> ()",
)
def gemv_out(x, codes, scales, out):
    """Like ``gemv`` into given memory: no allocation."""
    run(x, codes, scales, out)


@gemv_out.register_fake
def _(x, codes, scales, out):
    return None
