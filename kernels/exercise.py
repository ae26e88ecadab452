"""One pass over every operator at several shapes and launches, for compute-sanitizer: no comparison, each result is read once."""

from __future__ import annotations

import sys

import torch

from .agree import ops as hashed_ops
from .agree import test_agree as hashed
from .boundary import test_boundary as k1
from .draw import test_draw as drawn
from .gate import test_gate as k4
from .gemv import test_gemv as k6
from .head import test_head as k6h
from .launch import Launch
from .oproj import test_oproj as k5
from .qkv import test_qkv as k3
from .qkvproj import test_qkvproj as k3b
from .stats import test_stats as k2


def main() -> None:
    """Runs on cuda:0; raises on the first error."""
    device, count = torch.device("cuda", 0), 0
    for rows in (1, 6, 9):
        for cluster, blocks in ((1, 2), (2, rows), (4, 1), (5, rows)):
            k1.run(k1.inputs(rows, device=device), k1.outputs(rows, device, 1), scale_layout=1, launch=Launch(blocks, cluster))
        for blocks in (7, 120):
            k2.run(k2.inputs(rows, device=device), k2.outputs(rows, device), launch=Launch(blocks))
        for blocks in (3, 16):
            k4.run(k4.inputs(rows, device=device), k4.outputs(rows, device), launch=Launch(blocks, 8))
        for layout in ("v4", "v41"):
            k3.run(k3.inputs(rows, device=device, layout=layout), k3.outputs(rows, device), layout, launch=Launch(3))
        few = min(rows, 8)
        for k, blocks in ((512, 3), (1280, 132), (8192, 2)):
            k6.run(k6.inputs(few, 256, k, device=device), launch=Launch(blocks))
        for fp8 in (False, True):
            k3b.run(k3b.inputs(few, device=device, fp8=fp8), launch=Launch(9))
            k5.run(k5.inputs(few, 1, device=device, fp8=fp8), launch=Launch(5))
            k6h.run(k6h.inputs(few, 512, device=device, mx=fp8), launch=Launch(5))
        torch.ops.b300kit.agree(*hashed.inputs(rows, device=device), hashed_ops.new_state(device))
        torch.ops.b300kit.draw(*drawn.inputs(rows, 4096, device=device), 1, 2)
        count += 21
    torch.cuda.synchronize()
    sys.stdout.write(f"exercised {count} launches\n")


if __name__ == "__main__":
    main()
