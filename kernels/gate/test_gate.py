"""K4: the reference against torch, and the kernel against the reference: ids exact, ties, NaN, padding."""

import numpy as np
import pytest
import torch

from ..common import compare, tensors
from ..common.errors import ArgumentError
from ..common.shapes import EXPERTS, HIDDEN, TOP
from ..common.testing import ROWS, bf16_values, bits, generator, misaligned, poison
from ..launch import Launch
from . import ops, reference


def inputs(rows, seed=0, device="cpu", scale=1.0):
    rng = generator(seed)
    values = {
        "x": bf16_values(rng, rows, HIDDEN, scale=scale),
        "weight": bf16_values(rng, EXPERTS, HIDDEN, scale=0.02),
        "bias": torch.from_numpy((rng.standard_normal(EXPERTS) * 0.1).astype(np.float32)),
    }
    return {name: value.to(device) for name, value in values.items()}


def outputs(rows, device):
    out = (
        torch.empty(rows, TOP, dtype=torch.float32, device=device),
        torch.empty(rows, TOP, dtype=torch.int32, device=device),
        torch.empty(rows, TOP, dtype=torch.int32, device=device),
    )
    poison(*out)
    return out


def run(v, out, valid=None, scale=1.5, launch=None, logits=None):
    ops.run(v["x"], v["weight"], v["bias"], valid, scale, *out, launch=launch, out_logits=logits)
    torch.cuda.synchronize()
    return out


def judge(v, out, valid=None, scale=1.5):
    """ids exact where the float64 ranking has a gap of 1e-5; weights of the chosen ids to 1e-5; packed to the bit."""
    need = tensors.need
    want = reference.route(need(v["x"]), need(v["weight"]), need(v["bias"]), valid, TOP, scale)
    weights, ids, packed = need(out[0]), out[1].cpu().numpy(), out[2].cpu().numpy()
    live = np.arange(len(ids)) < (len(ids) if valid is None else valid)
    clear = live & (want.gap >= 1e-5)
    assert np.array_equal(ids[clear], want.ids[clear]), "ids"
    assert (ids[~live] == -1).all() and (weights[~live] == 0).all(), "padding rows"
    # A row with a close call may swap neighbours: its weights must still be those of the ids it names.
    chosen = np.take_along_axis(reference.scores(want.logits), np.where(live[:, None], ids, 0).astype(np.int64), -1)
    own = np.where(live[:, None], chosen / (chosen.sum(-1, keepdims=True) + 1e-20) * scale, 0.0)
    compare.assert_close(weights, own, "weights", 1e-5)
    assert np.array_equal(packed, reference.pack(ids, weights)), "packed"
    return int(clear.sum()), int(live.sum())


# --- the reference, anywhere ------------------------------------------------------------------------------------------
def test_reference_agrees_with_torch():
    v = inputs(9)
    got = reference.route(tensors.need(v["x"]), tensors.need(v["weight"]), tensors.need(v["bias"]), None, TOP, 1.0)
    logits = v["x"].double() @ v["weight"].double().T
    score = torch.nn.functional.softplus(logits).sqrt()  # torch's threshold is 20 as well
    top = (score + v["bias"].double()).topk(TOP)
    assert np.array_equal(got.ids, top.indices.numpy())
    weights = score.gather(1, top.indices)
    compare.assert_close(got.weights, (weights / weights.sum(-1, keepdim=True)).numpy(), "weights", 1e-12)


def test_reference_ties_nan_and_padding():
    logits = np.zeros((3, 8))
    logits[1, 5] = np.nan
    got = reference.route(np.zeros((3, 1)), np.zeros((8, 1)), np.zeros(8), 2, 3, 1.0, logits=logits)
    assert got.ids[0].tolist() == [0, 1, 2] and got.ids[1].tolist() == [5, 0, 1] and got.ids[2].tolist() == [-1, -1, -1]
    assert np.isnan(got.weights[1]).all() and (got.weights[2] == 0).all()
    assert reference.pack(np.array([[-1, 3]], np.int32), np.array([[0.0, 1.0]])).tolist() == [[-65536, 3 << 16 | 0x3F80]]


def test_operator_is_well_formed_on_cpu():
    v = inputs(2)
    torch.library.opcheck(torch.ops.b300kit.gate.default, (v["x"], v["weight"], v["bias"], None, 1.5))
    torch.library.opcheck(
        torch.ops.b300kit.gate.default, (v["x"], v["weight"], v["bias"], torch.tensor([1], dtype=torch.int32), 1.0)
    )


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("rows", [0, *ROWS, 256])
def test_against_float64(gpu, rows):
    v = inputs(rows, seed=rows, device=gpu)
    clear, live = judge(v, run(v, outputs(rows, gpu)))
    assert clear >= 0.8 * live, "the test data must mostly have a clear ranking"


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(6))
def test_random_magnitudes(gpu, seed):
    v = inputs(8, seed=seed, device=gpu, scale=float(10.0 ** generator(seed).uniform(-3, 2)))
    judge(v, run(v, outputs(8, gpu)))


@pytest.mark.gpu
def test_logits(gpu):
    v = inputs(11, seed=3, device=gpu)
    logits = torch.full((11, EXPERTS), float("nan"), device=gpu)
    run(v, outputs(11, gpu), logits=logits)
    want = tensors.need(v["x"]) @ tensors.need(v["weight"]).T
    compare.assert_close(tensors.need(logits), want, "logits", 1e-5, absolute=1e-5)


@pytest.mark.gpu
def test_ties_go_to_the_lowest_id(gpu):
    v = inputs(5, seed=1, device=gpu)
    v["weight"][:] = v["weight"][0]  # all scores equal, bit for bit
    v["bias"][:] = 0.0
    assert run(v, outputs(5, gpu))[1].tolist() == [[0, 1, 2, 3, 4, 5]] * 5
    v["bias"][[383, 100, 200]] = 1.0
    v["bias"][7] = -0.0
    assert run(v, outputs(5, gpu))[1].tolist() == [[100, 200, 383, 0, 1, 2]] * 5


@pytest.mark.gpu
def test_nan_and_infinity_show(gpu):
    v = inputs(3, seed=2, device=gpu)
    clean = run(v, outputs(3, gpu))
    v["x"][1, 5] = float("nan")
    out = run(v, outputs(3, gpu))
    assert torch.isnan(out[0][1]).all() and out[1][1].tolist() == [0, 1, 2, 3, 4, 5]
    for row in (0, 2):
        assert all(bits(a[row]) == bits(b[row]) for a, b in zip(out, clean, strict=True))
    v["x"][1, 5] = float("inf")
    assert torch.isnan(run(v, outputs(3, gpu))[0][1]).any()


@pytest.mark.gpu
@pytest.mark.parametrize("valid", [0, 1, 5, 8, 9])
def test_padding_rows(gpu, valid):
    v = inputs(8, seed=4, device=gpu)
    count = torch.tensor([valid], dtype=torch.int32, device=gpu)
    judge(v, run(v, outputs(8, gpu), valid=count), valid=valid)


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6, 8, 20, 64])
def test_same_bits_at_every_grid(gpu, rows):
    v = inputs(rows, seed=1, device=gpu)
    seen = {
        tuple(bits(t) for t in run(v, outputs(rows, gpu), launch=Launch(clusters, 8, pdl)))
        for clusters in (1, 3, 7, 15, 16, 17, 18, 19, 66)
        for pdl in (False, True)
    }
    assert len(seen) == 1


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_in_a_batch(gpu):
    v = inputs(17, seed=2, device=gpu)
    whole = run(v, outputs(17, gpu))
    for row in (0, 5, 8, 16):
        alone = run(dict(v, x=v["x"][row : row + 1].contiguous()), outputs(1, gpu))
        assert all(bits(a[0]) == bits(b[row]) for a, b in zip(alone, whole, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("rows", [1, 6])
def test_ten_thousand_replays_keep_their_bits(gpu, rows):
    v = inputs(rows, seed=6, device=gpu)
    out = outputs(rows, gpu)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run(v, out)
        want = [bits(t) for t in out]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for _ in range(10):
                torch.ops.b300kit.gate_out(v["x"], v["weight"], v["bias"], None, 1.5, *out)
        for _ in range(1000):
            graph.replay()
        torch.cuda.synchronize()
    assert [bits(t) for t in out] == want


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("weight", lambda t: t.float(), "dtype torch.bfloat16"),
        ("x", misaligned, "16-byte aligned"),
        ("x", lambda t: t[:, :-8], r"shape \(2, 5120\)"),
        ("bias", lambda t: t.bfloat16(), "dtype torch.float32"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v, outputs(2, gpu))
