"""Runs in the real engine's Python, with the unpacked wheel on its path: loads the plugin as SGLang does and calls what it swaps.

Prints one JSON document. Not a test by itself: tests/kernels/test_plugin.py starts it.
"""

import json
import logging
import sys
from types import SimpleNamespace


def main() -> None:
    """argv[1]: rows of the calls."""
    import torch

    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage() + (f" {record.exc_info[1]}" if record.exc_info else ""))
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(logging.INFO)

    from sglang.srt.plugins import load_plugins

    load_plugins()
    import sglang.srt.models.deepseek_v4 as model
    import sglang.srt.models.deepseek_v4_mhc as mhc

    rows, random = int(sys.argv[1]), torch.Generator().manual_seed(1)
    o = torch.randn(rows, 2, 4096, generator=random).bfloat16()
    weight = (torch.randn(2, 1024, 4096, generator=random) * 0.02).bfloat16()
    modes = {"is_decode": True, "is_target_verify": False, "fast_path": True, "fuse_mxfp8_quant": False}
    y = model._apply_wo_a_bf16_matmul(o, weight, **modes)
    exact = torch.einsum("tgd,grd->tgr", o.double(), weight.double())
    hc = SimpleNamespace(
        cfg=SimpleNamespace(mult=4, sinkhorn_iters=20, rms_eps=1e-20, eps=1e-6),
        fn=torch.randn(24, 20480, generator=random) * 0.01,
        scale=torch.tensor([0.5, 0.7, 0.9]),
        base=torch.randn(24, generator=random),
        tf32_parts=None,
        bf16_parts=None,
    )
    x = torch.randn(rows, 4, 5120, generator=random).bfloat16()
    try:
        pre, post, comb = mhc._mix_stats_impl(hc, x)
        columns = float((comb.sum(-2) - 1).abs().max())
        statistics = {"shapes": [list(t.shape) for t in (pre, post, comb)], "columns": columns}
    except Exception as error:  # noqa: BLE001  (SGLang's own needs a GPU here, and fails in its own ways)
        statistics = {"error": f"{type(error).__name__}: {error}"[:200]}
    loaded = sys.modules.get("b300kit_kernels.plugin.hooks")
    document = {
        "messages": [m for m in messages if "b300kit" in m or "B300KIT" in m or ("sglang" in m and "expected one of" in m)],
        "calls": dict(loaded.CALLS) if loaded else {},
        "wo_a": {"shape": list(y.shape), "error": float((y.double() - exact).norm() / exact.norm())},
        "stats": statistics,
    }
    sys.stdout.write("\n" + json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
