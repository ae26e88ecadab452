"""The agreement hash as a torch operator: ``b300kit::agree`` advances a state in place."""

import numpy as np
import torch

from ..common import checks, context
from ..common.errors import ArgumentError
from ..common.library import check, library
from ..launch import Launch
from . import reference

OP = "agree"
MAX_ROWS, MAX_WIDTH = 1024, 64


def new_state(device: torch.device | str) -> torch.Tensor:
    """A fresh state: chain 0, counter 0."""
    return torch.zeros(reference.STATE_WORDS, dtype=torch.int64, device=device)


def run(
    request_ids: torch.Tensor,
    positions: torch.Tensor,
    ids: torch.Tensor,
    accept: torch.Tensor,
    seq_lens: torch.Tensor,
    page_delta: torch.Tensor,
    state: torch.Tensor,
    launch: Launch | None = None,
) -> None:
    """One launch on the current stream.

    request_ids, page_delta [T] int64 (taken as 64 bits); positions, accept, seq_lens [T] int32; ids [T,W] int32; T <= 1024,
    W <= 64; state [66] int64, advanced in place. Raises ArgumentError, UnsupportedDevice, LaunchError.
    """
    device = checks.on_gpu(OP, "ids", ids)
    rows = checks.row_count(OP, "ids", ids, MAX_ROWS)
    if ids.dim() != 2 or not 1 <= ids.shape[1] <= MAX_WIDTH:
        raise ArgumentError(OP, "ids", f"shape (rows, 1 to {MAX_WIDTH})", f"shape {tuple(ids.shape)}")
    width = ids.shape[1]
    i32, i64 = torch.int32, torch.int64
    code = library().b300k_agree(
        checks.tensor(OP, "request_ids", request_ids, i64, (rows,), device),
        checks.tensor(OP, "positions", positions, i32, (rows,), device),
        checks.tensor(OP, "ids", ids, i32, (rows, width), device),
        checks.tensor(OP, "accept", accept, i32, (rows,), device),
        checks.tensor(OP, "seq_lens", seq_lens, i32, (rows,), device),
        checks.tensor(OP, "page_delta", page_delta, i64, (rows,), device),
        checks.tensor(OP, "state", state, i64, (reference.STATE_WORDS,), device),
        rows,
        width,
        int(launch.pdl if launch else True),
        context.stream_of(device),
    )
    check(OP, code)


@torch.library.custom_op(
    "b300kit::agree",
    mutates_args=("state",),
    device_types="cuda",
    schema="(Tensor request_ids, Tensor positions, Tensor ids, Tensor accept, Tensor seq_lens, Tensor page_delta, "
    "Tensor(a!) state) -> ()",
)
def agree(request_ids, positions, ids, accept, seq_lens, page_delta, state):
    """Advances ``state`` by one step."""
    run(request_ids, positions, ids, accept, seq_lens, page_delta, state)


@agree.register_fake
def _(request_ids, positions, ids, accept, seq_lens, page_delta, state):
    return None


@agree.register_kernel("cpu")
def _(request_ids, positions, ids, accept, seq_lens, page_delta, state):
    u64 = lambda t: t.numpy().view(np.uint64)  # noqa: E731
    step = reference.step_hash(
        u64(request_ids), positions.numpy(), ids.numpy(), accept.numpy(), seq_lens.numpy(), u64(page_delta)
    )
    state.copy_(torch.from_numpy(reference.advance(u64(state), step).view(np.int64)))
