"""K1: the reference against plain statements of the mathematics, and the kernel against the reference."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ..common import compare, rounding, tensors
from ..common.errors import ArgumentError
from ..common.shapes import HIDDEN, RMS_EPS
from ..common.testing import ROWS, bf16_values, bits, generator, misaligned, poison, poisoned
from ..launch import CLUSTERS, Launch
from . import ops, reference


def inputs(rows, seed=0, device="cpu", scale=1.0):
    rng = generator(seed)
    f32 = lambda *s: torch.from_numpy(rng.uniform(0.0, 1.0, s).astype(np.float32))  # noqa: E731
    values = {
        "y": bf16_values(rng, rows, HIDDEN, scale=scale),
        "residual": bf16_values(rng, rows, 4, HIDDEN, scale=scale),
        "post": 2 * f32(rows, 4),
        "comb": f32(rows, 4, 4),
        "pre": f32(rows, 4),
        "weight": bf16_values(rng, HIDDEN),
    }
    return {name: value.to(device) for name, value in values.items()}


def outputs(rows, device, scale_layout=0):
    out = (
        torch.empty(rows, 4, HIDDEN, dtype=torch.bfloat16, device=device),
        torch.empty(rows, HIDDEN, dtype=torch.bfloat16, device=device),
        torch.empty(rows, HIDDEN, dtype=torch.float8_e4m3fn, device=device),
        torch.empty(ops.scale_bytes(rows, max(scale_layout, 0)), dtype=torch.uint8, device=device),
    )
    poison(*out)
    return out


def expected(v, eps=RMS_EPS):
    t = tensors
    return reference.boundary(
        t.f64(v["y"]), t.need(v["residual"]), t.f64(v["post"]), t.f64(v["comb"]), t.f64(v["pre"]), t.need(v["weight"]), eps
    )


def run(v, out, eps=RMS_EPS, scale_layout=0, launch=None):
    ops.run(v["y"], v["residual"], v["post"], v["comb"], v["pre"], v["weight"], eps, scale_layout, *out, launch=launch)
    torch.cuda.synchronize()
    return out


def within(found, interval, what):
    """Inside the reference's interval everywhere, equal to its value on all but 0.1% of the elements."""
    compare.assert_between(found, interval.low, interval.value, interval.high, what)


def judge(v, out, eps=RMS_EPS, scale_layout=0):
    """R' and x against float64; then x from the kernel's own R', and the codes from the kernel's own x, bit for bit."""
    residual, x, q, scale = (t.cpu() for t in out)
    want = expected(v, eps)
    if v["y"] is not None:
        within(tensors.need(residual), want.residual, "residual")
        own = dict(v, y=None, residual=residual)
    else:
        own = v
    within(tensors.need(x), expected(own, eps).x, "x")
    codes, scales = rounding.quantise(tensors.need(x))
    flat = scales.reshape(-1) if scale_layout == 0 else rounding.tiled_scales(scales)
    places = np.ones(flat.shape, bool) if scale_layout == 0 else rounding.tiled_scales(np.ones_like(scales)) == 1
    assert np.array_equal(scale.numpy()[places], flat[places]), "scale bytes"
    found = q.view(torch.uint8).numpy()
    nan = (codes & 0x7F) == 0x7F
    assert np.array_equal(found[~nan], codes[~nan]), "codes"
    assert ((found[nan] & 0x7F) == 0x7F).all(), "codes of a group with NaN"


# --- the reference, anywhere ------------------------------------------------------------------------------------------
def test_reference_keeps_a_stream_that_the_coefficients_select():
    v = inputs(3)
    v["post"] = torch.zeros(3, 4)
    v["comb"] = torch.eye(4)[[1, 0, 3, 2]].expand(3, 4, 4).contiguous()  # swaps streams 0/1 and 2/3
    v["pre"] = torch.tensor([[0.0, 0.0, 1.0, 0.0]]).repeat(3, 1)
    got = expected(v)
    assert np.array_equal(got.residual.value[:, 0], tensors.need(v["residual"])[:, 1])
    u = tensors.need(v["residual"])[:, 3]
    x = rounding.bf16(u / np.sqrt((u * u).mean(-1, keepdims=True)) * tensors.need(v["weight"]))
    compare.assert_bf16(got.x.value, x, "x")


def test_reference_agrees_with_torch_in_float32():
    v = inputs(4, seed=3)
    r = torch.einsum("tji,tjh->tih", v["comb"], v["residual"].float()) + v["post"][:, :, None] * v["y"].float()[:, None]
    within(r.bfloat16().double().numpy(), expected(v).residual, "residual")


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=True, allow_infinity=True), min_size=32, max_size=32))
def test_codes_and_scales_reproduce_their_values(values):
    x = rounding.bf16(np.array([values], dtype=np.float64))
    codes, scales = rounding.quantise(x)
    if not np.isfinite(x).all():
        assert scales[0, 0] == 255
        return
    amax = np.abs(x).max()
    back = rounding.e4m3_values(codes) * (np.ldexp(1.0, scales[0, 0].astype(int) - 127) if scales[0, 0] else 0.0)
    assert not np.isnan(back).any()
    # Half a step of E4M3 near the group's largest value, and the group's smallest step.
    assert (np.abs(back - x) <= np.maximum(np.abs(x) * 2.0**-4, amax * 2.0**-9) + 448 * 2.0**-127).all()


def test_codes_equal_torchs_conversion():
    x = generator(5).standard_normal(20000).astype(np.float32) * 100
    ours = rounding.e4m3_codes(np.clip(x, -448, 448).astype(np.float64))
    assert np.array_equal(ours, torch.from_numpy(np.clip(x, -448, 448)).to(torch.float8_e4m3fn).view(torch.uint8).numpy())


@pytest.mark.parametrize("scale_layout", [-1, 0, 1])
def test_operator_is_well_formed_on_cpu(scale_layout):
    v = inputs(2)
    arguments = (v["y"], v["residual"], v["post"], v["comb"], v["pre"], v["weight"], RMS_EPS, scale_layout)
    # The float8 outputs have no CPU comparison in torch, so opcheck's own output check runs on the unquantised form only.
    checks = (
        ("test_schema", "test_faketensor")
        if scale_layout >= 0
        else ("test_schema", "test_faketensor", "test_autograd_registration")
    )
    torch.library.opcheck(torch.ops.b300kit.boundary.default, arguments, test_utils=checks)


def test_cpu_tensor_is_refused_by_the_kernel_call():
    v = inputs(1)
    with pytest.raises(ArgumentError, match=r"residual.*CUDA tensor.*cpu"):
        run(v, outputs(1, "cpu"))


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [0, *ROWS, 300])
@pytest.mark.parametrize("scale_layout", [0, 1])
def test_against_float64(gpu, rows, scale_layout):
    v = inputs(rows, seed=rows, device=gpu)
    judge(v, run(v, outputs(rows, gpu, scale_layout), scale_layout=scale_layout), scale_layout=scale_layout)


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(6))
def test_random_magnitudes(gpu, seed):
    scale = float(10.0 ** generator(seed).uniform(-12, 12))
    v = inputs(6, seed=seed, device=gpu, scale=scale)
    judge(v, run(v, outputs(6, gpu)))


@pytest.mark.gpu
def test_first_sublayer_and_final_collapse(gpu):
    v = inputs(5, seed=9, device=gpu)
    first = dict(v, y=None, post=None, comb=None, pre=None)
    judge(first, run(first, outputs(5, gpu)))
    collapse = dict(v, y=None, post=None, comb=None)
    out = run(collapse, outputs(5, gpu))
    judge(collapse, out)
    assert poisoned(out[0]), "residual must not be written without y"


@pytest.mark.gpu
def test_without_quantisation_codes_stay_untouched(gpu):
    v = inputs(4, device=gpu)
    out = run(v, outputs(4, gpu), scale_layout=-1)
    assert poisoned(out[2]) and poisoned(out[3])
    with_codes = run(v, outputs(4, gpu))
    assert bits(out[1]) == bits(with_codes[1])


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6, 8, 64])
def test_same_bits_at_every_grid_and_cluster(gpu, rows):
    v = inputs(rows, seed=1, device=gpu)
    seen = {
        tuple(bits(t) for t in run(v, outputs(rows, gpu), launch=Launch(blocks, cluster, pdl)))
        for cluster in CLUSTERS
        for blocks in (1, 2, 7, 33, 37, 38, 131, 132, 148, 152)
        for pdl in (False, True)
    }
    assert len(seen) == 1


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_in_a_batch(gpu):
    v = inputs(8, seed=2, device=gpu)
    whole = run(v, outputs(8, gpu))
    for row in range(8):
        one = {name: value if name == "weight" else value[row : row + 1].contiguous() for name, value in v.items()}
        alone = run(one, outputs(1, gpu))
        assert all(bits(a[0]) == bits(b[row]) for a, b in zip(alone[:3], whole[:3], strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3.3e38, 1e-40, 0.0])
def test_extreme_values_stay_in_their_row(gpu, value):
    v = inputs(4, seed=4, device=gpu)
    clean = run(v, outputs(4, gpu))
    v["residual"][2, 1, 77] = value
    if value in (0.0, 1e-40):
        v["residual"][2] = value
        v["y"][2] = 0.0
    out = run(v, outputs(4, gpu))
    judge(v, out)
    for row in (0, 1, 3):
        assert all(bits(a[row]) == bits(b[row]) for a, b in zip(out[:3], clean[:3], strict=True))
    if value != value:
        assert torch.isnan(out[1][2]).any() and (out[3].view(4, -1)[2] == 255).any()


@pytest.mark.gpu
def test_runs_in_a_graph_with_dependent_launches(gpu):
    v = inputs(6, seed=6, device=gpu)
    ping, pong = outputs(6, gpu), outputs(6, gpu)
    run(v, ping)
    second = dict(v, residual=ping[0])
    run(second, pong)
    want = [bits(t) for t in pong]
    poison(*pong)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(3):
            args = (v["y"], v["residual"], v["post"], v["comb"], v["pre"], v["weight"], RMS_EPS, 0)
            torch.ops.b300kit.boundary_out(*args, *ping)
            torch.ops.b300kit.boundary_out(args[0], ping[0], *args[2:], *pong)
    for _ in range(20):
        graph.replay()
    torch.cuda.synchronize()
    assert [bits(t) for t in pong] == want


@pytest.mark.gpu
def test_traces_and_compiles(gpu):
    v = inputs(3, device=gpu)
    arguments = (v["y"], v["residual"], v["post"], v["comb"], v["pre"], v["weight"], RMS_EPS, -1)
    torch.library.opcheck(torch.ops.b300kit.boundary.default, arguments, test_utils=("test_schema", "test_faketensor"))
    compiled = torch.compile(lambda *a: torch.ops.b300kit.boundary(*a)[1] * 2, fullgraph=True)
    assert torch.equal(compiled(*arguments), torch.ops.b300kit.boundary(*arguments)[1] * 2)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("y", lambda t: t.float(), "dtype torch.bfloat16, found torch.float32"),
        ("y", lambda t: t.t().contiguous().t(), "contiguous memory"),
        ("residual", misaligned, "16-byte aligned"),
        ("comb", lambda t: t[:1], r"shape \(2, 4, 4\)"),
        ("pre", lambda t: t.cpu(), "device cuda:0, found cpu"),
        ("weight", lambda t: t[:-8], r"shape \(5120,\)"),
        ("post", lambda t: None, "since y is given"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v, outputs(2, gpu))


@pytest.mark.gpu
def test_aliased_output_and_too_many_rows_are_refused(gpu):
    v = inputs(2, device=gpu)
    out = outputs(2, gpu)
    with pytest.raises(ArgumentError, match=r"out_residual.*apart from 'residual'"):
        run(v, (v["residual"], *out[1:]))
    big = torch.empty(4097, 4, HIDDEN, dtype=torch.bfloat16, device=gpu)
    with pytest.raises(ArgumentError, match="at most 4096 rows"):
        run(dict(v, residual=big), out)
