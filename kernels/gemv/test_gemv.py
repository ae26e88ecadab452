"""K6: the reference against torch, and the kernel against the reference."""

import numpy as np
import pytest
import torch

from ..common import rounding, tensors
from ..common.errors import ArgumentError
from ..common.testing import SM_COUNTS, bf16_values, bits, generator, misaligned, poison
from ..launch import Launch
from . import ops, reference

SHAPES = [(384, 512), (32, 1024), (512, 1280), (5120, 2048), (160, 2304), (96, 4096), (4608, 5120), (160, 8192)]


def inputs(rows, n, k, seed=0, device="cpu", scale=1.0):
    rng = generator(seed)
    codes = rng.integers(0, 256, (n, k)).astype(np.uint8)  # every code, subnormals included
    codes[(codes & 0x7F) == 0x7F] = 0x7E
    scales = rng.integers(112, 124, (n // 32, k // 32)).astype(np.uint8)
    values = {"x": bf16_values(rng, rows, k, scale=scale), "codes": tensors.codes(codes), "scales": torch.from_numpy(scales)}
    return {name: value.to(device) for name, value in values.items()}


def run(v, launch=None):
    out = torch.empty(v["x"].shape[0], v["codes"].shape[0], dtype=torch.bfloat16, device=v["x"].device)
    poison(out)
    ops.run(v["x"], v["codes"], v["scales"], out, launch=launch)
    torch.cuda.synchronize()
    return out


def expected(v):
    return reference.gemv(tensors.need(v["x"]), v["codes"].view(torch.uint8).cpu().numpy(), v["scales"].cpu().numpy())


def judge(v, out):
    """Each element within bf16's half step plus 1e-5 of the sum of magnitudes; and relative L2 at most 2e-3."""
    found, want = tensors.need(out), expected(v)
    weight = np.abs(reference.values(v["codes"].view(torch.uint8).cpu().numpy(), v["scales"].cpu().numpy()))
    size = np.abs(tensors.need(v["x"])) @ weight.T
    good = np.abs(found - want) <= 2.0**-8 * np.abs(want) + 1e-5 * size
    assert good.all(), f"{(~good).sum()} of {good.size} elements off"
    if want.size:
        error = np.linalg.norm(found - want) / np.linalg.norm(want)
        assert error <= 2e-3, f"relative L2 {error}"


# --- the reference, anywhere ------------------------------------------------------------------------------------------
def test_reference_agrees_with_torch():
    v = inputs(3, 256, 64)
    scale = torch.exp2(v["scales"].double() - 127).repeat_interleave(32, 0).repeat_interleave(32, 1)
    want = v["x"].double() @ (v["codes"].float().double() * scale).T
    assert np.allclose(expected(v), want.numpy(), rtol=1e-12)


def test_block_quantisation_is_close_and_keeps_its_own_values():
    weight = generator(2).standard_normal((64, 96)) * 0.02
    codes, scales = reference.block_quantise(weight)
    back = reference.values(codes, scales)
    assert np.linalg.norm(back - weight) / np.linalg.norm(weight) < 0.04
    again = reference.block_quantise(back)
    assert np.array_equal(reference.values(*again), back)


def test_weights_are_checked_once():
    v = inputs(1, 256, 64)
    ops.check_weights(v["codes"], v["scales"])
    v["scales"][1, 1] = 135
    with pytest.raises(ArgumentError, match=r"scales.*134.*135"):
        ops.check_weights(v["codes"], v["scales"])
    v["codes"].view(torch.uint8)[5, 5] = 0xFF
    with pytest.raises(ArgumentError, match="1 NaN codes"):
        ops.check_weights(v["codes"], v["scales"])


def test_operator_is_well_formed_on_cpu():
    v = inputs(2, 256, 64)
    # torch cannot compare float8 inputs on the CPU, which its schema check does: the fake kernel only.
    arguments = (v["x"], v["codes"], v["scales"])
    torch.library.opcheck(torch.ops.b300kit.gemv.default, arguments, test_utils=("test_faketensor",))
    judge(v, torch.ops.b300kit.gemv(*arguments))


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("rows", range(9))
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_against_float64(gpu, rows, n, k):
    v = inputs(rows, n, k, seed=rows, device=gpu)
    judge(v, run(v))


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(8192, 1280), (1280, 8192), (5120, 2048)])
@pytest.mark.parametrize("rows", [1, 6, 8])
def test_same_bits_at_every_grid(gpu, rows, n, k):
    v = inputs(rows, n, k, seed=1, device=gpu)
    assert len({bits(run(v, Launch(blocks, pdl=pdl))) for blocks in (1, 3, *SM_COUNTS) for pdl in (False, True)}) == 1


@pytest.mark.gpu
def test_every_code_and_scale_is_widened_exactly(gpu):
    """One column of x at a time is 1: the output is W itself, so every code and every allowed scale byte is seen."""
    v = inputs(8, 64, 512, device=gpu)
    codes = torch.arange(256, dtype=torch.uint8, device=gpu).repeat(128).view(64, 512)
    v["codes"] = torch.where((codes & 0x7F) == 0x7F, 0x7E, codes).view(torch.float8_e4m3fn)
    for byte in (0, 1, 7, 8, 100, 127, 134):
        v["scales"][:] = byte
        want = reference.values(v["codes"].view(torch.uint8).cpu().numpy(), v["scales"].cpu().numpy())
        for first in range(0, 512, 8):
            v["x"].zero_()
            v["x"][range(8), range(first, first + 8)] = 1.0
            found = tensors.need(run(v))
            # An fp32 sum flushes nothing above 2^-126; below it (byte 0 and 1) the tensor core's sum may.
            exact = rounding.bf16(want[:, first : first + 8].T)
            ok = (found == exact) | ((np.abs(exact) < 2.0**-126) & (np.abs(found) <= np.abs(exact)))
            assert ok.all(), f"scale byte {byte}, columns {first}-{first + 7}"


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_magnitudes(gpu, scale):
    v = inputs(6, 256, 1280, seed=3, device=gpu, scale=scale)
    judge(v, run(v))


@pytest.mark.gpu
@pytest.mark.parametrize("k", [1280, 8192])
def test_a_bad_row_shows_and_stays_apart(gpu, k):
    v = inputs(8, 256, k, seed=4, device=gpu)
    clean = run(v)
    v["x"][3, 100] = float("nan")
    out = run(v)
    assert torch.isnan(out[3]).all()
    for row in (0, 1, 2, 4, 5, 6, 7):
        assert bits(out[row]) == bits(clean[row])


@pytest.mark.gpu
@pytest.mark.parametrize(("n", "k"), [(512, 1280), (5120, 2048)])
def test_a_row_has_the_same_bits_alone_and_in_a_batch(gpu, n, k):
    v = inputs(8, n, k, seed=2, device=gpu)
    whole = run(v)
    for row in (0, 3, 7):
        assert bits(run(dict(v, x=v["x"][row : row + 1].contiguous()))[0]) == bits(whole[row])


@pytest.mark.gpu
def test_runs_in_a_graph_after_its_producer(gpu):
    v, w = inputs(6, 512, 1280, seed=6, device=gpu), inputs(6, 1280, 512, seed=7, device=gpu, scale=1.0)
    v["x"].mul_(1e-3)
    first, second = run(v), torch.empty(6, 1280, dtype=torch.bfloat16, device=gpu)
    want = bits(run(dict(w, x=first)))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(5):
            torch.ops.b300kit.gemv_out(v["x"], v["codes"], v["scales"], first)
            torch.ops.b300kit.gemv_out(first, w["codes"], w["scales"], second)
    for _ in range(200):
        poison(first, second)
        graph.replay()
    torch.cuda.synchronize()
    assert bits(second) == want


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x", lambda t: t.float(), "dtype torch.bfloat16"),
        ("x", misaligned, "16-byte aligned"),
        ("x", lambda t: t.repeat(5, 1), "at most 8 rows"),
        ("codes", lambda t: t.view(torch.uint8), "dtype torch.float8_e4m3fn"),
        ("codes", lambda t: t[:40], "multiple of"),
        ("codes", lambda t: t[:, :448].contiguous(), "K one of"),
        ("scales", lambda t: t[:, :1], r"shape \(8, 16\)"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, 256, 512, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v)
