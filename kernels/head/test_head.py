"""K6h: the reference against torch, and the kernel against the reference: logits, ids, ties, NaN."""

import numpy as np
import pytest
import torch

from ..common import tensors
from ..common.errors import ArgumentError
from ..common.shapes import HIDDEN, VOCABULARY
from ..common.testing import SM_COUNTS, bf16_values, bits, generator, misaligned, poison
from ..launch import Launch
from . import ops, reference


def inputs(rows, vocabulary=1008, seed=0, device="cpu", mx=False):
    rng = generator(seed)
    v = {"x": bf16_values(rng, rows, HIDDEN), "weight": None, "scales": None}
    if mx:
        codes = rng.integers(0, 256, (vocabulary, HIDDEN)).astype(np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0x7E
        v["weight"] = tensors.codes(codes)
        v["scales"] = torch.from_numpy(rng.integers(112, 120, (vocabulary, HIDDEN // 32)).astype(np.uint8))
    else:
        v["weight"] = bf16_values(rng, vocabulary, HIDDEN, scale=0.02)
    return {name: value if value is None else value.to(device) for name, value in v.items()}


def run(v, launch=None, logits=True):
    rows, device = len(v["x"]), v["x"].device
    out = (
        torch.empty(rows, dtype=torch.int32, device=device),
        torch.empty(rows, dtype=torch.float32, device=device),
        torch.empty(rows, v["weight"].shape[0], dtype=torch.bfloat16, device=device),
    )
    poison(*out)
    ops.run(v["x"], v["weight"], v["scales"], out[0], out[1], out[2] if logits else None, launch=launch)
    torch.cuda.synchronize()
    return out


def dense(v):
    if v["scales"] is None:
        return tensors.need(v["weight"])
    return reference.values(v["weight"].view(torch.uint8).cpu().numpy(), v["scales"].cpu().numpy())


def judge(v, out):
    """Logits within bf16's half step plus 1e-5 of the sum of magnitudes; ids and values the argmax of the kernel's own."""
    exact, found = tensors.need(v["x"]) @ dense(v).T, tensors.need(out[2])
    size = np.abs(tensors.need(v["x"])) @ np.abs(dense(v)).T
    assert (np.abs(found - exact) <= 2.0**-8 * np.abs(exact) + 1e-5 * size).all(), "logits"
    ids = reference.argmax(found) if len(found) else np.zeros(0, np.int32)
    assert np.array_equal(out[0].cpu().numpy(), ids), "ids"
    assert np.array_equal(tensors.need(out[1]), found[np.arange(len(ids)), ids]), "values"


# --- the reference, anywhere ------------------------------------------------------------------------------------------
def test_reference_agrees_with_torch_on_ties_and_nan():
    values = np.array([[1.0, 3.0, 3.0], [np.inf, np.nan, 2.0], [-2.0, -1.0, -1.0]])
    assert reference.argmax(values).tolist() == torch.from_numpy(values).argmax(-1).tolist() == [1, 1, 1]


@pytest.mark.parametrize("mx", [False, True])
def test_operators_are_well_formed_on_cpu(mx):
    v = inputs(2, 64, mx=mx)
    for operator in (torch.ops.b300kit.head, torch.ops.b300kit.head_logits):
        torch.library.opcheck(operator.default, (v["x"], v["weight"], v["scales"]), test_utils=("test_faketensor",))
    judge(v, torch.ops.b300kit.head_logits(v["x"], v["weight"], v["scales"]))


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("mx", [False, True])
@pytest.mark.parametrize("rows", range(9))
def test_against_float64(gpu, rows, mx):
    v = inputs(rows, (16, 1008, 4096)[rows % 3], seed=rows, device=gpu, mx=mx)
    judge(v, run(v))


@pytest.mark.gpu
def test_the_whole_vocabulary(gpu):
    x = bf16_values(generator(1), 8, HIDDEN).to(gpu)
    weight = torch.randn(VOCABULARY, HIDDEN, device=gpu, generator=torch.Generator(gpu).manual_seed(1)).bfloat16()
    out = run({"x": x, "weight": weight, "scales": None})
    want = x.float() @ weight.float().T
    assert not bool(((out[2].float() - want).abs() > 2.0**-8 * want.abs() + 0.05).any())
    assert torch.equal(out[0].long(), out[2].float().argmax(-1))
    assert torch.equal(out[1], out[2].float().amax(-1))


@pytest.mark.gpu
@pytest.mark.parametrize("mx", [False, True])
@pytest.mark.parametrize("rows", [1, 6, 8])
def test_same_bits_at_every_grid(gpu, rows, mx):
    v = inputs(rows, 2048, seed=1, device=gpu, mx=mx)
    seen = {tuple(bits(t) for t in run(v, Launch(blocks, pdl=pdl))) for blocks in (1, 3, *SM_COUNTS) for pdl in (False, True)}
    assert len(seen) == 1
    assert bits(run(v, logits=False)[0]) == next(iter(seen))[0]


@pytest.mark.gpu
def test_ties_go_to_the_lowest_id_and_nan_shows(gpu):
    v = inputs(4, 2048, seed=2, device=gpu)
    v["weight"][[300, 7, 2047]] = v["weight"][5] * 64
    v["x"][0] = v["weight"][300] * 4
    v["x"][1, 3] = float("nan")
    v["x"][2] = 0.0
    out = run(v)
    assert out[0].tolist()[:3] == [7, 0, 0] and torch.isnan(out[1][1]) and out[1][2] == 0.0
    v["weight"][1500, 9] = float("nan")
    assert run(v)[0].tolist()[3] == 1500


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("x", lambda t: t.float(), "dtype torch.bfloat16"),
        ("x", misaligned, "16-byte aligned"),
        ("x", lambda t: t.repeat(5, 1), "at most 8 rows"),
        ("weight", lambda t: t[:-1], "multiple of 16"),
        ("weight", lambda t: t[:, :-8], r"shape \(1008, 5120\)"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v)
