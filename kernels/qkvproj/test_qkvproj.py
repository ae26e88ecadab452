"""K3b: qkv against float64, and everything behind it equal to K3 on that qkv, bit for bit."""

import numpy as np
import pytest
import torch

from ..common import tensors
from ..common.errors import ArgumentError
from ..common.shapes import HIDDEN, KV, Q_LORA, RMS_EPS
from ..common.testing import SM_COUNTS, bf16_values, bits, generator, misaligned
from ..common.workspace import Workspace
from ..gemv.reference import values
from ..launch import GEMV_ROWS, Launch
from ..qkv import test_qkv as k3
from . import ops, reference

ROW = Q_LORA + KV


def inputs(rows, seed=0, device="cpu", layout="v4", fp8=False):
    rng = generator(seed)
    v = k3.inputs(rows, seed=seed, layout=layout)
    del v["qkv"]
    v["x"] = bf16_values(rng, rows, HIDDEN)
    v["scales"] = None
    if fp8:
        codes = rng.integers(0, 256, (ROW, HIDDEN)).astype(np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0x7E
        v["weight"], v["scales"] = (
            tensors.codes(codes),
            torch.from_numpy(rng.integers(112, 118, (ROW // 32, HIDDEN // 32)).astype(np.uint8)),
        )
    else:
        v["weight"] = bf16_values(rng, ROW, HIDDEN, scale=0.02)
    return {name: value if value is None else value.to(device) for name, value in v.items()}


NAMES = ("x", "weight", "scales", "q_weight", "kv_weight", "cos_sin", "positions", "slots", "cache")


def run(v, layout="v4", launch=None, space=None):
    out = k3.outputs(len(v["x"]), v["x"].device)
    ops.run(*(v[n] for n in NAMES), RMS_EPS, layout, k3.PAGE, 0, *out, launch=launch, space=space)
    torch.cuda.synchronize()
    return out


def dense(v):
    if v["scales"] is None:
        return tensors.need(v["weight"])
    return values(v["weight"].view(torch.uint8).cpu().numpy(), v["scales"].cpu().numpy())


# --- the reference, anywhere ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fp8", [False, True])
def test_operator_on_cpu_is_the_product_then_k3(fp8):
    v = inputs(2, fp8=fp8)
    arguments = (*(v[n] for n in NAMES), RMS_EPS, "v4", k3.PAGE, 0)
    torch.library.opcheck(torch.ops.b300kit.qkvproj.default, arguments, test_utils=("test_faketensor",))
    cache = v["cache"].clone()
    out = torch.ops.b300kit.qkvproj(*arguments)
    qkv = (v["x"].double() @ torch.from_numpy(dense(v)).T).to(torch.bfloat16)
    rest = (v["q_weight"], v["kv_weight"], v["cos_sin"], v["positions"], v["slots"], cache, RMS_EPS, "v4", k3.PAGE, 0)
    want = torch.ops.b300kit.qkv(qkv, *rest)
    assert all(bits(a) == bits(b) for a, b in zip((*out, v["cache"]), (*want, cache), strict=True))


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("rows", range(9))
def test_product_against_float64_and_the_rest_equal_to_k3(gpu, rows, fp8, layout):
    v = inputs(rows, seed=rows, device=gpu, layout=layout, fp8=fp8)
    untouched, space = v["cache"].clone(), Workspace(ops.OP, GEMV_ROWS, gpu)
    out = run(v, layout, space=space)
    if rows == 0:
        assert bits(v["cache"]) == bits(untouched)
        return
    qkv = ops.scratch(space, rows).clone()
    exact = tensors.need(v["x"]) @ dense(v).T
    size = np.abs(tensors.need(v["x"])) @ np.abs(dense(v)).T
    assert (np.abs(tensors.need(qkv) - exact) <= 2.0**-8 * np.abs(exact) + 1e-5 * size).all(), "qkv"
    assert np.linalg.norm(tensors.need(qkv) - reference.project(tensors.need(v["x"]), dense(v))) <= 2e-3 * np.linalg.norm(exact)
    other = dict(v, qkv=qkv, cache=untouched)
    want = k3.run(other, k3.outputs(rows, gpu), layout)
    assert all(bits(a) == bits(b) for a, b in zip((*out, v["cache"]), (*want, untouched), strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("rows", [1, 6, 8])
def test_same_bits_at_every_grid(gpu, rows, fp8):
    seen = set()
    for blocks in (1, 3, *SM_COUNTS):
        for pdl in (False, True):
            v = inputs(rows, seed=1, device=gpu, fp8=fp8)
            seen.add(tuple(bits(t) for t in (*run(v, launch=Launch(blocks, pdl=pdl)), v["cache"])))
    assert len(seen) == 1


@pytest.mark.gpu
def test_ten_thousand_replays_keep_their_bits(gpu):
    v = inputs(6, seed=3, device=gpu, fp8=True)
    out = k3.outputs(6, gpu)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call = lambda: ops.run(*(v[n] for n in NAMES), RMS_EPS, "v4", k3.PAGE, 0, *out)  # noqa: E731
        call()
        stream.synchronize()
        want = [bits(t) for t in (*out, v["cache"])]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(10):
                call()
        for _ in range(1000):
            graph.replay()
        torch.cuda.synchronize()
    assert [bits(t) for t in (*out, v["cache"])] == want


@pytest.mark.gpu
def test_a_bad_row_shows_and_stays_apart(gpu):
    v = inputs(6, seed=4, device=gpu)
    clean = run(v)
    v["x"][2, 7] = float("nan")
    out = run(v)
    assert torch.isnan(out[0][2]).all()
    for row in (0, 1, 3, 4, 5):
        assert bits(out[0][row]) == bits(clean[0][row])


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x", lambda t: t.float(), "dtype torch.bfloat16"),
        ("x", misaligned, "16-byte aligned"),
        ("x", lambda t: t.repeat(5, 1), "at most 8 rows"),
        ("weight", lambda t: t[:-8], r"shape \(1792, 5120\)"),
        ("kv_weight", lambda t: t[:-8], r"shape \(512,\)"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v)
