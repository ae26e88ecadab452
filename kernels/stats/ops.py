"""K2 as torch operators: ``b300kit::stats`` allocates its outputs, ``b300kit::stats_out`` writes given ones."""

import torch

from ..common import checks, context, tensors, workspace
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..common.shapes import HIDDEN, MIX, SINKHORN_STEPS, STATS_ROWS, STREAMS
from ..launch import Launch
from . import reference

OP = "stats"


def run(
    residual: torch.Tensor,
    weight: torch.Tensor,
    scale: torch.Tensor,
    base: torch.Tensor,
    rms_eps: float,
    hc_eps: float,
    out_pre: torch.Tensor,
    out_post: torch.Tensor,
    out_comb: torch.Tensor,
    launch: Launch | None = None,
    space: workspace.Workspace | None = None,
    steps: int = SINKHORN_STEPS,
) -> None:
    """One launch on the current stream.

    residual [T,4,5120] bf16; weight [24,20480], scale [3], base [24] fp32; outputs fp32 pre [T,4], post [T,4], comb [T,4,4].
    ``space`` defaults to the process's workspace of this device and stream. Finite residuals up to 1e17 in magnitude are
    in range; beyond it the sum of squares overflows fp32. Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "residual", residual)
    rows = checks.row_count(OP, "residual", residual, STATS_ROWS)
    f32 = torch.float32
    if not (rms_eps >= 0.0 and hc_eps > 0.0):
        raise ArgumentError(OP, "rms_eps, hc_eps", "at least 0, over 0", f"{rms_eps}, {hc_eps}")
    if steps < 1:
        raise ArgumentError(OP, "steps", "at least 1", str(steps))
    addresses = [
        checks.tensor(OP, "residual", residual, torch.bfloat16, (rows, STREAMS, HIDDEN), device),
        checks.tensor(OP, "weight", weight, f32, (MIX, STREAMS * HIDDEN), device),
        checks.tensor(OP, "scale", scale, f32, (3,), device),
        checks.tensor(OP, "base", base, f32, (MIX,), device),
        checks.tensor(OP, "out_pre", out_pre, f32, (rows, STREAMS), device),
        checks.tensor(OP, "out_post", out_post, f32, (rows, STREAMS), device),
        checks.tensor(OP, "out_comb", out_comb, f32, (rows, STREAMS, STREAMS), device),
    ]
    if rows == 0:
        return
    stream = context.stream_of(device)
    space = space or workspace.shared(OP, STATS_ROWS, device, stream)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_stats(
        *addresses, space.claim(rows, device, stream), rows, rms_eps, hc_eps, steps, choice.blocks, int(choice.pdl), stream
    )
    check(OP, code)


def _empty(residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    rows = residual.shape[0]
    new = lambda *shape: residual.new_empty(shape, dtype=torch.float32)  # noqa: E731
    return new(rows, STREAMS), new(rows, STREAMS), new(rows, STREAMS, STREAMS)


_ARGUMENTS = "Tensor residual, Tensor weight, Tensor scale, Tensor base, float rms_eps, float hc_eps"


@torch.library.custom_op(
    "b300kit::stats", mutates_args=(), device_types="cuda", schema=f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)"
)
def stats(residual, weight, scale, base, rms_eps, hc_eps):
    """Returns (pre, post, comb)."""
    out = _empty(residual)
    run(residual, weight, scale, base, rms_eps, hc_eps, *out)
    return out


@stats.register_fake
def _(residual, weight, scale, base, rms_eps, hc_eps):
    return _empty(residual)


@stats.register_kernel("cpu")
def _(residual, weight, scale, base, rms_eps, hc_eps):
    need = tensors.need
    values = reference.stats(need(residual), need(weight), need(scale), need(base), rms_eps, hc_eps, SINKHORN_STEPS)
    return tuple(tensors.to_f32(value) for value in values)


_OUTPUTS = "Tensor(a!) out_pre, Tensor(b!) out_post, Tensor(c!) out_comb"


@torch.library.custom_op(
    "b300kit::stats_out",
    mutates_args=("out_pre", "out_post", "out_comb"),
    device_types="cuda",
    schema=f"({_ARGUMENTS}, {_OUTPUTS}) -> ()",
)
def stats_out(residual, weight, scale, base, rms_eps, hc_eps, out_pre, out_post, out_comb):
    """Like ``stats`` into given memory: no allocation after the stream's first call."""
    run(residual, weight, scale, base, rms_eps, hc_eps, out_pre, out_post, out_comb)


@stats_out.register_fake
def _(residual, weight, scale, base, rms_eps, hc_eps, out_pre, out_post, out_comb):
    return None
