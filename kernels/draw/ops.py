"""The matched-draw sampler as a torch operator: ``b300kit::draw``."""

import numpy as np
import torch

from ..common import checks, context
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..launch import Launch
from . import reference

OP = "draw"
MAX_ROWS = 64


def run(
    logits: torch.Tensor,
    inverse_temperature: torch.Tensor,
    top_p: torch.Tensor,
    top_k: torch.Tensor,
    nonce: torch.Tensor,
    position: torch.Tensor,
    step: torch.Tensor,
    seed: int,
    tag: int,
    out_ids: torch.Tensor,
    launch: Launch | None = None,
) -> None:
    """One launch on the current stream.

    logits [T,V] bf16, T <= 64, V a multiple of 4; inverse_temperature [T] fp32 (0: greedy), top_p [T] fp32 (1: off); top_k
    (0: off), nonce (of the request, never of its slot), position, step (of the draft; 0 for the target) [T] int32; seed and
    purpose tag 64 bits each. ids [T] int32, -1 for a row whose largest logit is NaN or infinite.
    Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "logits", logits)
    rows = checks.row_count(OP, "logits", logits, MAX_ROWS)
    if logits.dim() != 2 or logits.shape[1] < 4 or logits.shape[1] % 4:
        raise ArgumentError(OP, "logits", "shape (rows, a multiple of 4)", f"shape {tuple(logits.shape)}")
    vocabulary = logits.shape[1]
    f32, i32 = torch.float32, torch.int32
    code = library().b300k_draw(
        checks.tensor(OP, "logits", logits, torch.bfloat16, (rows, vocabulary), device),
        checks.tensor(OP, "inverse_temperature", inverse_temperature, f32, (rows,), device),
        checks.tensor(OP, "top_p", top_p, f32, (rows,), device),
        checks.tensor(OP, "top_k", top_k, i32, (rows,), device),
        checks.tensor(OP, "nonce", nonce, i32, (rows,), device),
        checks.tensor(OP, "position", position, i32, (rows,), device),
        checks.tensor(OP, "step", step, i32, (rows,), device),
        checks.tensor(OP, "out_ids", out_ids, i32, (rows,), device),
        rows,
        vocabulary,
        seed & 0xFFFFFFFFFFFFFFFF,
        tag & 0xFFFFFFFFFFFFFFFF,
        int(launch.pdl if launch else True),
        context.stream_of(device),
    )
    check(OP, code)


@torch.library.custom_op(
    "b300kit::draw",
    mutates_args=(),
    device_types="cuda",
    schema="(Tensor logits, Tensor inverse_temperature, Tensor top_p, Tensor top_k, Tensor nonce, Tensor position, Tensor step, "
    "int seed, int tag) -> Tensor",
)
def draw(logits, inverse_temperature, top_p, top_k, nonce, position, step, seed, tag):
    """Returns ids."""
    out = logits.new_empty(logits.shape[0], dtype=torch.int32)
    run(logits, inverse_temperature, top_p, top_k, nonce, position, step, seed, tag, out)
    return out


@draw.register_fake
def _(logits, inverse_temperature, top_p, top_k, nonce, position, step, seed, tag):
    return logits.new_empty(logits.shape[0], dtype=torch.int32)


@draw.register_kernel("cpu")
def _(logits, inverse_temperature, top_p, top_k, nonce, position, step, seed, tag):
    key = (seed ^ tag) & 0xFFFFFFFFFFFFFFFF
    values = logits.float().numpy()
    rows = zip(
        values,
        inverse_temperature.numpy(),
        top_k.tolist(),
        top_p.numpy(),
        nonce.tolist(),
        position.tolist(),
        step.tolist(),
        strict=True,
    )
    return torch.from_numpy(np.asarray([reference.draw(*row, key) for row in rows], np.int32))
