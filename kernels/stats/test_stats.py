"""K2: the reference against properties of a Sinkhorn, and the kernel against the reference."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ..common import compare, tensors
from ..common.errors import ArgumentError
from ..common.shapes import HC_EPS, HIDDEN, MIX, RMS_EPS, SINKHORN_STEPS
from ..common.testing import ROWS, SM_COUNTS, bf16_values, bits, generator, misaligned, poison
from ..launch import Launch
from . import ops, reference


def inputs(rows, seed=0, device="cpu", scale=1.0, spread=0.01):
    rng = generator(seed)
    f32 = lambda *s: torch.from_numpy(rng.standard_normal(s).astype(np.float32))  # noqa: E731
    values = {
        "residual": bf16_values(rng, rows, 4, HIDDEN, scale=scale),
        "weight": f32(MIX, 4 * HIDDEN) * spread,
        "scale": torch.from_numpy(rng.uniform(0.5, 2.0, 3).astype(np.float32)),
        "base": f32(MIX),
    }
    return {name: value.to(device) for name, value in values.items()}


def outputs(rows, device):
    out = tuple(torch.empty(shape, dtype=torch.float32, device=device) for shape in ((rows, 4), (rows, 4), (rows, 4, 4)))
    poison(*out)
    return out


def run(v, out, launch=None, space=None, steps=SINKHORN_STEPS, rms_eps=RMS_EPS):
    ops.run(v["residual"], v["weight"], v["scale"], v["base"], rms_eps, HC_EPS, *out, launch=launch, space=space, steps=steps)
    torch.cuda.synchronize()
    return out


def judge(v, out, relative=1e-5, steps=SINKHORN_STEPS):
    need = tensors.need
    want = reference.stats(need(v["residual"]), need(v["weight"]), need(v["scale"]), need(v["base"]), RMS_EPS, HC_EPS, steps)
    for found, value, name in zip(out, want, ("pre", "post", "comb"), strict=True):
        compare.assert_close(need(found), value, name, relative, absolute=1e-9)
    if steps < SINKHORN_STEPS:
        return  # after one step the columns are 1 - eps/sum
    columns = need(out[2]).sum(-2)
    assert (np.isnan(columns) | (np.abs(columns - 1.0) <= 2e-6)).all(), "column sums"


# --- the reference, anywhere ------------------------------------------------------------------------------------------
@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=16, max_size=16))
def test_reference_columns_sum_to_one_and_all_is_positive(values):
    c = reference.sinkhorn(np.array(values).reshape(1, 4, 4), SINKHORN_STEPS, HC_EPS)
    assert (c > 0).all()
    assert np.abs(c.sum(-2) - 1.0).max() <= 2e-6


def test_reference_of_a_flat_matrix_is_flat():
    c = reference.sinkhorn(np.zeros((1, 4, 4)), SINKHORN_STEPS, HC_EPS)
    assert np.abs(c - 0.25).max() < 1e-6


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-40, 40), min_size=16, max_size=16), st.integers(1, 20))
def test_dividing_vectors_is_dividing_the_matrix(values, steps):
    """The kernel's form: q <- A c + eps q, r = 1/q. It must be the same mathematics, eps and step count included."""
    logits = np.array(values).reshape(4, 4)
    a = np.exp(logits - logits.max(-1, keepdims=True))
    a = a / a.sum(-1, keepdims=True) + HC_EPS
    q, r, p = np.ones(4), np.ones(4), a.sum(0) + HC_EPS
    for _ in range(steps - 1):
        q = a @ (1 / p) + HC_EPS * q
        r = 1 / q
        p = r @ a + HC_EPS * p
    compare.assert_close(r[:, None] * a / p, reference.sinkhorn(logits[None], steps, HC_EPS)[0], "matrix", 1e-12)


def test_operator_is_well_formed_on_cpu():
    v = inputs(2)
    torch.library.opcheck(torch.ops.b300kit.stats.default, (v["residual"], v["weight"], v["scale"], v["base"], RMS_EPS, HC_EPS))


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [0, *ROWS, 256])
def test_against_float64(gpu, rows):
    v = inputs(rows, seed=rows, device=gpu)
    judge(v, run(v, outputs(rows, gpu)))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(6))
def test_random_magnitudes_and_steep_coefficients(gpu, seed):
    rng = generator(seed)
    v = inputs(7, seed=seed, device=gpu, scale=float(10.0 ** rng.uniform(-15, 15)), spread=float(10.0 ** rng.uniform(-4, -1)))
    # With logits of tens, an fp32 logit is only good to 1e-6 of itself: the coefficient's relative error grows with it.
    need = tensors.need
    flat = need(v["residual"]).reshape(7, -1)
    mix = flat @ need(v["weight"]).T / np.sqrt((flat * flat).mean(-1, keepdims=True) + RMS_EPS)
    judge(v, run(v, outputs(7, gpu)), relative=1e-5 + 1e-6 * float(np.abs(mix).max() * 2))


@pytest.mark.gpu
@pytest.mark.parametrize("steps", [1, 2, 5, 20])
def test_step_counts(gpu, steps):
    v = inputs(3, seed=steps, device=gpu)
    judge(v, run(v, outputs(3, gpu), steps=steps), steps=steps)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6, 8, 20])
def test_same_bits_at_every_grid(gpu, rows):
    v = inputs(rows, seed=1, device=gpu)
    seen = {
        tuple(bits(t) for t in run(v, outputs(rows, gpu), launch=Launch(blocks, pdl=pdl)))
        for blocks in (*SM_COUNTS, 119, 120, 121, 528)
        for pdl in (False, True)
    }
    assert len(seen) == 1


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_in_a_batch(gpu):
    v = inputs(17, seed=2, device=gpu)
    whole = run(v, outputs(17, gpu))
    for row in (0, 5, 8, 16):
        alone = run(dict(v, residual=v["residual"][row : row + 1].contiguous()), outputs(1, gpu))
        assert all(bits(a[0]) == bits(b[row]) for a, b in zip(alone, whole, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 3.3e38])
def test_bad_rows_show_and_stay_apart(gpu, value):
    v = inputs(4, seed=4, device=gpu)
    clean = run(v, outputs(4, gpu))
    v["residual"][2, 1, 77] = value
    out = run(v, outputs(4, gpu))
    for row in (0, 1, 3):
        assert all(bits(a[row]) == bits(b[row]) for a, b in zip(out, clean, strict=True))
    if value != value:
        assert all(torch.isnan(t[2]).all() for t in out)
    else:
        judge(v, out) if value == 3.3e38 else None
        assert value == 3.3e38 or all(torch.isnan(t[2]).all() for t in out)


@pytest.mark.gpu
@pytest.mark.parametrize("value", [0.0, 1e-39, 1e-20])
def test_tiny_rows(gpu, value):
    v = inputs(3, seed=5, device=gpu)
    v["residual"][1] = value
    judge(v, run(v, outputs(3, gpu)))


@pytest.mark.gpu
def test_ten_thousand_replays_keep_their_bits(gpu):
    v = inputs(6, seed=6, device=gpu)
    out = outputs(6, gpu)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run(v, out)
        want = [bits(t) for t in out]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(10):
                torch.ops.b300kit.stats_out(v["residual"], v["weight"], v["scale"], v["base"], RMS_EPS, HC_EPS, *out)
        for _ in range(1000):
            graph.replay()
        torch.cuda.synchronize()
    assert [bits(t) for t in out] == want


@pytest.mark.gpu
def test_capture_without_a_workspace_and_a_second_stream_are_refused(gpu):
    from ..common.workspace import Workspace

    v = inputs(2, device=gpu)
    out = outputs(2, gpu)
    space = Workspace("stats", 8)
    run(v, out, space=space)
    with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(ArgumentError, match=r"workspace.*use on its stream"):
        run(v, out, space=space)
    space.release()
    with pytest.raises(ArgumentError, match="workspace for 9 rows"):
        run(inputs(9, device=gpu), outputs(9, gpu), space=space)
    fresh = torch.cuda.Stream()
    with pytest.raises(ArgumentError, match="made before capture"), torch.cuda.graph(torch.cuda.CUDAGraph(), stream=fresh):
        torch.ops.b300kit.stats_out(v["residual"], v["weight"], v["scale"], v["base"], RMS_EPS, HC_EPS, *out)
    torch.cuda.synchronize()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weight", lambda t: t.bfloat16(), "dtype torch.float32"),
        ("weight", lambda t: t.t().contiguous().t(), "contiguous"),
        ("residual", misaligned, "16-byte aligned"),
        ("base", lambda t: t[:8], r"shape \(24,\)"),
        ("scale", lambda t: t.cpu(), "device cuda:0"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v, outputs(2, gpu))
