"""Ours against SGLang's own kernels on the same inputs: what the swap changes in a model, stated in bits. Needs the peers."""

import numpy as np
import pytest
import torch

from ..boundary import test_boundary as k1
from ..common import compare, tensors
from ..common.shapes import HC_EPS, RMS_EPS, SINKHORN_STEPS, TOP
from ..gate import test_gate as k4
from ..qkv import test_qkv as k3
from ..stats import test_stats as k2
from . import sglang


def triton_or_skip(name):
    module = sglang.triton_module(name)
    return module if module else pytest.skip(f"no unpacked SGLang wheel in {sglang.ROOT} (see kernels/peers/README.md)")


def cuda_or_skip():
    return sglang.cuda_library() or pytest.skip(f"no libpeers.so in {sglang.ROOT} (see kernels/peers/README.md)")


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6, 8, 33])
def test_boundary(gpu, rows):
    post, norm = triton_or_skip("mhc_post_split_h"), triton_or_skip("hc_combine_norm")
    v = k1.inputs(rows, seed=5, device=gpu)
    out = k1.run(v, k1.outputs(rows, gpu, 1), scale_layout=1)
    residual = post.mhc_post_split_h(v["y"], v["residual"], v["post"], v["comb"])
    assert torch.equal(residual, out[0]), "the streams are equal bit for bit"
    x, q, scale = norm.hc_combine_norm_mxfp8(residual.flatten(1), v["pre"], v["weight"], RMS_EPS)
    compare.assert_bf16(tensors.need(out[1]), tensors.need(x), "x")
    same = (x == out[1]).view(rows, -1, 32).all(-1)
    codes = lambda t: t.view(torch.uint8).view(rows, -1, 32)  # noqa: E731
    assert torch.equal(codes(q)[same], codes(out[2])[same]), "codes of equal inputs are equal bit for bit"
    if bool(same.all()):
        written = torch.from_numpy(np.flatnonzero(tiled_ones(rows))).to(gpu)
        assert torch.equal(scale[written], out[3][written])


def tiled_ones(rows):
    from ..common.rounding import tiled_scales

    return tiled_scales(np.ones((rows, 160), np.uint8))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6, 8])
def test_stats(gpu, rows):
    mhc = triton_or_skip("mhc")
    v = k2.inputs(rows, seed=5, device=gpu)
    out = k2.run(v, k2.outputs(rows, gpu))
    theirs = mhc.hc_mix_stats_sinkhorn(
        v["residual"].flatten(1), v["weight"], v["scale"], v["base"], 4, SINKHORN_STEPS, RMS_EPS, HC_EPS
    )
    for mine, other, name in zip(out, theirs, ("pre", "post", "comb"), strict=True):
        compare.assert_close(tensors.need(mine), tensors.need(other), name, 2e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6, 8])
def test_gate(gpu, rows):
    library, router = cuda_or_skip(), triton_or_skip("moe_fused_gate")
    v = k4.inputs(rows, seed=5, device=gpu)
    logits = torch.empty(rows, 384, dtype=torch.float32, device=gpu)
    out = k4.run(v, k4.outputs(rows, gpu), scale=1.5, logits=logits)
    own, packed = torch.empty_like(logits), torch.empty(rows, TOP, dtype=torch.int32, device=gpu)
    stream = torch.cuda.current_stream().cuda_stream
    assert library.peer_gate_gemm(v["x"].data_ptr(), v["weight"].data_ptr(), own.data_ptr(), rows, stream) == 0
    compare.assert_close(tensors.need(logits), tensors.need(own), "logits", 1e-5, 1e-5)
    weights, ids = router.moe_fused_gate(
        logits, v["bias"], TOP, "sqrtsoftplus", renormalize=True, routed_scaling_factor=1.5,
        apply_routed_scaling_factor_on_output=True, renormalize_epsilon=1e-20, packed_out=packed, sqrtsoftplus_log1p=True,
    )  # fmt: skip
    assert torch.equal(ids, out[1]), "ids from the same logits"
    compare.assert_close(tensors.need(out[0]), tensors.need(weights), "weights", 1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
@pytest.mark.parametrize("rows", [1, 6, 8, 100])
def test_cache_bytes(gpu, rows, layout):
    library = cuda_or_skip()
    v = k3.inputs(rows, seed=5, device=gpu, layout=layout)
    other = v["cache"].clone()
    out = k3.run(v, k3.outputs(rows, gpu), layout)
    q = torch.empty_like(out[0])
    stream, number = torch.cuda.current_stream().cuda_stream, ("v4", "v41").index(layout)
    addresses = [v[n].data_ptr() for n in ("kv_weight", "cos_sin", "positions", "slots")]
    assert library.peer_kv(v["qkv"].data_ptr(), *addresses, other.data_ptr(), rows, RMS_EPS, number, stream) == 0
    assert library.peer_q_norm(v["qkv"].data_ptr(), v["q_weight"].data_ptr(), q.data_ptr(), rows, RMS_EPS, stream) == 0
    torch.cuda.synchronize()
    off = int((other != v["cache"]).sum())
    assert off == 0, f"{off} of {rows * 528} cache bytes differ"
    compare.assert_bf16(tensors.need(out[0]), tensors.need(q), "q")
