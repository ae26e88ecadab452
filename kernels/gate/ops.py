"""K4 as torch operators: ``b300kit::gate`` allocates its outputs, ``b300kit::gate_out`` writes given ones."""

import torch

from ..common import checks, context, tensors, workspace
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..common.shapes import EXPERTS, GATE_ROWS, HIDDEN, TOP
from ..launch import Launch
from . import reference

OP = "gate"


def run(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor,
    valid_rows: torch.Tensor | None,
    route_scale: float,
    out_weights: torch.Tensor,
    out_ids: torch.Tensor,
    out_packed: torch.Tensor,
    launch: Launch | None = None,
    space: workspace.Workspace | None = None,
    out_logits: torch.Tensor | None = None,
) -> None:
    """One launch on the current stream.

    x [T,5120] bf16; weight [384,5120] bf16; bias [384] fp32; valid_rows [1] int32 or None; outputs weights [T,6] fp32, ids
    and packed [T,6] int32, logits [T,384] fp32 when wanted. route_scale: 1.5 where the MoE expects it folded, else 1.
    Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "x", x)
    rows = checks.row_count(OP, "x", x, GATE_ROWS)
    if not 0.0 < route_scale < float("inf"):
        raise ArgumentError(OP, "route_scale", "a finite number over 0", str(route_scale))
    i32, f32 = torch.int32, torch.float32
    a = {
        "x": checks.tensor(OP, "x", x, torch.bfloat16, (rows, HIDDEN), device),
        "weight": checks.tensor(OP, "weight", weight, torch.bfloat16, (EXPERTS, HIDDEN), device),
        "bias": checks.tensor(OP, "bias", bias, f32, (EXPERTS,), device),
        "weights": checks.tensor(OP, "out_weights", out_weights, f32, (rows, TOP), device),
        "ids": checks.tensor(OP, "out_ids", out_ids, i32, (rows, TOP), device),
        "packed": checks.tensor(OP, "out_packed", out_packed, i32, (rows, TOP), device),
    }
    valid = None if valid_rows is None else checks.tensor(OP, "valid_rows", valid_rows, i32, (1,), device)
    logits = None if out_logits is None else checks.tensor(OP, "out_logits", out_logits, f32, (rows, EXPERTS), device)
    if rows == 0:
        return
    stream = context.stream_of(device)
    space = space or workspace.shared(OP, GATE_ROWS, device, stream)
    choice = context.launch_for(OP, rows, device, launch)
    code = library().b300k_gate(
        a["x"], a["weight"], a["bias"], valid, a["weights"], a["ids"], a["packed"], logits,
        space.claim(rows, device, stream), rows, route_scale, choice.blocks, int(choice.pdl), stream,
    )  # fmt: skip
    check(OP, code)


def _empty(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    shape = (x.shape[0], TOP)
    return x.new_empty(shape, dtype=torch.float32), x.new_empty(shape, dtype=torch.int32), x.new_empty(shape, dtype=torch.int32)


_ARGUMENTS = "Tensor x, Tensor weight, Tensor bias, Tensor? valid_rows, float route_scale"


@torch.library.custom_op(
    "b300kit::gate", mutates_args=(), device_types="cuda", schema=f"({_ARGUMENTS}) -> (Tensor, Tensor, Tensor)"
)
def gate(x, weight, bias, valid_rows, route_scale):
    """Returns (weights, ids, packed)."""
    out = _empty(x)
    run(x, weight, bias, valid_rows, route_scale, *out)
    return out


@gate.register_fake
def _(x, weight, bias, valid_rows, route_scale):
    return _empty(x)


@gate.register_kernel("cpu")
def _(x, weight, bias, valid_rows, route_scale):
    valid = None if valid_rows is None else int(valid_rows)
    result = reference.route(tensors.need(x), tensors.need(weight), tensors.need(bias), valid, TOP, route_scale)
    weights = tensors.to_f32(result.weights)
    packed = reference.pack(result.ids, tensors.need(weights))
    return weights, torch.from_numpy(result.ids.copy()), torch.from_numpy(packed.copy())


@torch.library.custom_op(
    "b300kit::gate_out",
    mutates_args=("out_weights", "out_ids", "out_packed"),
    device_types="cuda",
    schema=f"({_ARGUMENTS}, Tensor(a!) out_weights, Tensor(b!) out_ids, Tensor(c!) out_packed) -> ()",
)
def gate_out(x, weight, bias, valid_rows, route_scale, out_weights, out_ids, out_packed):
    """Like ``gate`` into given memory: no allocation after the stream's first call."""
    run(x, weight, bias, valid_rows, route_scale, out_weights, out_ids, out_packed)


@gate_out.register_fake
def _(x, weight, bias, valid_rows, route_scale, out_weights, out_ids, out_packed):
    return None
