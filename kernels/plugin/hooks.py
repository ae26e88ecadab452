"""The swapped operators. Each hook calls ours where it fits, else SGLang's own, and says why once for each reason."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from ..common.errors import KernelError
from ..common.shapes import HIDDEN, MIX, O_GROUP_K, O_LORA, SINKHORN_STEPS, STREAMS
from ..oproj import ops as _oproj  # noqa: F401  (the operators are defined on import)
from ..stats import ops as _stats  # noqa: F401

logger = logging.getLogger(__name__)
ON_CPU = os.environ.get("B300KIT_KERNELS_ON_CPU") == "1"  # for tests: our float64 references in the real SGLang
CALLS: Counter[str] = Counter()  # "stats", "stats: fallback", ...
_SAID: set[tuple[str, str]] = set()


def _fall_back(switch: str, reason: str) -> None:
    CALLS[f"{switch}: fallback"] += 1
    if (switch, reason) not in _SAID:
        _SAID.add((switch, reason))
        logger.warning("b300kit kernels: %s: SGLang's own is used: %s", switch, reason)


def _swap(switch: str, reason: str | None, ours: Callable[[], Any], own: Callable[[], Any]) -> Any:
    if reason is None:
        try:
            result = ours()
        except KernelError as error:
            reason = str(error)
        else:
            CALLS[switch] += 1
            return result
    _fall_back(switch, reason)
    return own()


def _misfit(name: str, value: torch.Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> str | None:
    if not (value.is_cuda or ON_CPU):
        return f"{name} is on {value.device}"
    if value.dtype != dtype or tuple(value.shape) != shape or not value.is_contiguous():
        found = f"{value.dtype} {tuple(value.shape)}, strides {tuple(value.stride())}"
        return f"{name}: expected contiguous {dtype} {shape}, found {found}"
    return None


def stats(limit: int) -> Callable[..., Any]:
    """Around deepseek_v4_mhc._mix_stats_impl(hc, x): x [T,4,5120] bf16 -> pre [T,4], post [T,4], comb [T,4,4]."""

    def hook(original: Callable[..., Any], hc: Any, x: torch.Tensor) -> Any:
        rows, cfg = x.shape[0], hc.cfg
        reason = f"more than {limit} rows" if rows > limit else _misfit("x", x, torch.bfloat16, (rows, STREAMS, HIDDEN))
        reason = reason or _misfit("fn", hc.fn, torch.float32, (MIX, STREAMS * HIDDEN))
        if cfg.mult != STREAMS or cfg.sinkhorn_iters != SINKHORN_STEPS:
            reason = reason or f"{cfg.mult} streams, {cfg.sinkhorn_iters} Sinkhorn steps"

        def ours() -> Any:
            return torch.ops.b300kit.stats(x, hc.fn, hc.scale, hc.base, cfg.rms_eps, cfg.eps)

        return _swap("stats", reason, ours, lambda: original(hc, x))

    return hook


@cache
def _no_turn(device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
    """A rope table of one position that turns nothing, and eight rows at it: SGLang has turned the rope back already."""
    table = torch.tensor([1.0, 0.0], device=device).repeat(32).view(1, 64)
    return table, torch.zeros(8, dtype=torch.int32, device=device)


def wo_a(limit: int) -> Callable[..., Any]:
    """Around deepseek_v4._apply_wo_a_bf16_matmul(o [T,G,4096], wo_a [G,1024,4096], ...) -> [T,G,1024], bf16."""

    def hook(original: Callable[..., Any], o: torch.Tensor, weight: torch.Tensor, *rest: Any, **options: Any) -> Any:
        rows, groups = o.shape[0], weight.shape[0]
        reason = f"more than {limit} rows" if rows > limit else None
        quantised = [name for name in ("fuse_mxfp8_quant", "fp8_grid", "emit_fp8") if options.get(name)]
        if quantised or len(rest) > 2:  # positional options past is_decode, is_target_verify: not how 0.5.23 calls it
            reason = reason or f"asked for {', '.join(quantised) or 'unknown options'}"
        reason = reason or _misfit("o", o, torch.bfloat16, (rows, groups, O_GROUP_K))
        reason = reason or _misfit("wo_a", weight, torch.bfloat16, (groups, O_LORA, O_GROUP_K))

        def ours() -> Any:
            table, positions = _no_turn(o.device)
            heads, flat = o.view(rows, groups * 8, 512), weight.view(groups * O_LORA, O_GROUP_K)
            return torch.ops.b300kit.oproj(heads, flat, None, table, positions[:rows], -1)[0].view(rows, groups, O_LORA)

        return _swap("wo_a", reason, ours, lambda: original(o, weight, *rest, **options))

    return hook


TARGETS: dict[str, tuple[str, Callable[[int], Callable[..., Any]]]] = {
    "stats": ("sglang.srt.models.deepseek_v4_mhc._mix_stats_impl", stats),
    "wo_a": ("sglang.srt.models.deepseek_v4._apply_wo_a_bf16_matmul", wo_a),
}
