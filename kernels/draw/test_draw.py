"""The sampler: known answers, its exp and log, its distribution, and the kernel equal to the CPU's to the bit."""

import numpy as np
import pytest
import torch

from ..common.errors import ArgumentError
from ..common.testing import generator
from . import ops, reference

SEED, TAG = 0x1234_5678_9ABC_DEF0, 0x5A
VOCABULARY = 129280


def inputs(rows, vocabulary=256, seed=0, device="cpu", scale=3.0):
    rng = generator(seed)
    i32 = lambda low, high: torch.from_numpy(rng.integers(low, high, rows).astype(np.int32))  # noqa: E731
    v = [
        torch.from_numpy((rng.standard_normal((rows, vocabulary)) * scale).astype(np.float32)).bfloat16(),
        torch.from_numpy(rng.choice([0.0, 0.5, 1.0, 1.6], rows).astype(np.float32)),
        torch.from_numpy(rng.choice([0.1, 0.5, 0.95, 1.0], rows).astype(np.float32)),
        torch.from_numpy(rng.choice([0, 1, 7, 40, vocabulary], rows).astype(np.int32)),
        i32(-(2**31), 2**31 - 1),
        i32(0, 1_000_000),
        i32(0, 8),
    ]
    return [t.to(device) for t in v]


def surprise(found, expected, freedom):
    """The chi-square statistic as a standard normal deviate (Wilson and Hilferty); over 3.1 once in a thousand."""
    statistic = ((found - expected) ** 2 / expected).sum()
    return ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))


# --- the pieces, anywhere ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("counter", "key", "want"),
    [
        ((0, 0, 0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_known_answers(counter, key, want):
    assert tuple(reference.philox(np.asarray([counter], np.uint32), key)[0]) == want


def test_exp_and_log_are_close():
    z = -np.linspace(0, 27, 20001, dtype=np.float32)
    want = np.exp(z.astype(np.float64)) * 2.0**40
    assert np.abs(reference.weights(z) / want - 1)[want > 1e4].max() < 1e-4
    assert np.abs(reference.weights(z) / want - 1)[z > -5].max() < 2e-6
    assert reference.weights(np.float32([0.0, -np.inf, -100.0, np.nan])).tolist() == [2**40, 0, 0, 0]
    v = np.exp(np.linspace(-16, 3, 20001)).astype(np.float32)
    exact = np.log(v.astype(np.float64))
    assert (np.abs(reference.log(v) - exact) <= 2e-7 * np.abs(exact) + 1e-7).all()
    near_one = np.float32(1.0) - np.arange(1, 50, dtype=np.float32) * np.float32(2.0**-24)
    assert (np.abs(reference.log(near_one) / np.log(near_one.astype(np.float64)) - 1) < 1e-6).all()
    edges = reference.gumbel(np.asarray([0, 0xFFFFFFFF], np.uint32))
    assert np.isfinite(edges).all() and edges[0] < -2.7 and edges[1] > 15


def test_operator_is_well_formed_on_cpu():
    torch.library.opcheck(torch.ops.b300kit.draw.default, (*inputs(3), SEED >> 1, TAG))


# --- what is kept and how it is drawn ---------------------------------------------------------------------------------
def test_kept_by_count_and_by_weight():
    logits = np.log(np.asarray([0.4, 0.3, 0.15, 0.1, 0.03, 0.02, 0.0, 0.0], np.float32) + 1e-30).astype(np.float32)
    one, off = np.float32(1.0), np.float32(1.0)
    keep = lambda k, p: np.flatnonzero(reference.kept(logits, one, k, np.float32(p))).tolist()  # noqa: E731
    assert keep(3, off) == [0, 1, 2] and keep(0, 0.69) == [0, 1] and keep(0, 0.71) == [0, 1, 2] and keep(1, 0.99) == [0]
    assert keep(2, 0.5) == [0] and keep(2, 0.6) == [0, 1], "top_p is of what top_k left"
    assert keep(0, 1e-9) == [0]
    tied = np.float32([1, 2, 2, 2, 0, 0, 0, 0])
    assert np.flatnonzero(reference.kept(tied, one, 1, off)).tolist() == [1, 2, 3], "ties with the last are kept"


def many(logits, count, inverse_temperature, top_k, top_p, step=0, start=0):
    """ids of ``count`` positions that share one row of logits."""
    positions = torch.arange(start, start + count, dtype=torch.int32)
    full = lambda value, dtype: torch.full((count,), value, dtype=dtype)  # noqa: E731
    return torch.ops.b300kit.draw(
        logits.expand(count, -1).contiguous(),
        full(inverse_temperature, torch.float32),
        full(top_p, torch.float32),
        full(top_k, torch.int32),
        full(99, torch.int32),
        positions,
        full(step, torch.int32),
        SEED >> 1,
        TAG,
    ).numpy()


@pytest.mark.parametrize(
    ("inverse_temperature", "top_k", "top_p"), [(1.0, 0, 1.0), (0.6, 0, 1.0), (1.0, 5, 1.0), (1.0, 0, 0.7), (1.4, 9, 0.9)]
)
def test_the_distribution_is_the_softmax_of_what_is_kept(inverse_temperature, top_k, top_p):
    logits = (torch.from_numpy(generator(3).standard_normal(16).astype(np.float32)) * 0.8).bfloat16()
    count = 6000
    found = np.bincount(many(logits, count, inverse_temperature, top_k, top_p), minlength=16)
    values = logits.float().numpy()
    keep = reference.kept(values, np.float32(inverse_temperature), top_k, np.float32(top_p))
    p = np.where(keep, np.exp((values - values.max()).astype(np.float64) * inverse_temperature), 0)
    p /= p.sum()
    assert (found[~keep] == 0).all()
    assert keep.sum() > 2 and surprise(found[keep], p[keep] * count, keep.sum() - 1) < 3.1


def test_draws_of_neighbouring_positions_are_independent():
    logits = torch.zeros(4).bfloat16()
    ids = many(logits, 6001, 1.0, 0, 1.0)
    table = np.zeros((4, 4))
    np.add.at(table, (ids[:-1], ids[1:]), 1)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    assert surprise(table, expected, 9) < 3.1


def test_close_distributions_draw_the_same_token_mostly():
    """The point of matched draws: a draft's and the target's token agree nearly as often as the distributions overlap."""
    rng = generator(5)
    target = torch.from_numpy(rng.standard_normal(64).astype(np.float32)).bfloat16()
    draft = (target.float() + torch.from_numpy(rng.standard_normal(64).astype(np.float32)) * 0.2).bfloat16()
    agree = (many(target, 2000, 1.0, 0, 1.0) == many(draft, 2000, 1.0, 0, 1.0)).mean()
    p, q = (torch.softmax(t.float(), -1).numpy() for t in (target, draft))
    overlap = np.minimum(p, q).sum()
    assert agree > 2 * overlap - 1 and agree > 0.8, f"{agree} against an overlap of {overlap}"
    apart = (many(target, 2000, 1.0, 0, 1.0) == many(draft, 2000, 1.0, 0, 1.0, step=1)).mean()
    assert apart < 0.1, "another draft step has noise of its own"


def test_greedy_ties_and_bad_rows():
    logits = torch.tensor([[1, 5, 5, 0], [1, float("nan"), 2, 0], [1, float("inf"), 2, 0], [float("-inf")] * 4]).bfloat16()
    rows = lambda value, dtype: torch.full((4,), value, dtype=dtype)  # noqa: E731
    rest = (rows(0, torch.int32), rows(1, torch.int32), rows(2, torch.int32), rows(0, torch.int32), 1, 2)
    for inverse_temperature in (0.0, 1.0):
        ids = torch.ops.b300kit.draw(logits, rows(inverse_temperature, torch.float32), rows(1.0, torch.float32), *rest)
        assert ids.tolist()[1:] == [-1, -1, -1]
        assert ids[0] == 1 if inverse_temperature == 0.0 else ids[0] in (0, 1, 2, 3)


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("vocabulary", [4, 256, 5000, VOCABULARY])
@pytest.mark.parametrize("rows", [0, 1, 6, 8, 64])
def test_equal_to_the_cpu(gpu, rows, vocabulary):
    v = inputs(rows, vocabulary, seed=rows)
    want = torch.ops.b300kit.draw(*v, SEED >> 1, TAG)
    found = torch.ops.b300kit.draw(*(t.to(gpu) for t in v), SEED >> 1, TAG)
    assert torch.equal(found.cpu(), want)


@pytest.mark.gpu
def test_extreme_rows_equal_the_cpu(gpu):
    v = inputs(8, 64, seed=9)
    inf, nan = float("inf"), float("nan")
    v[0][0], v[0][1, 5], v[0][2, 6], v[0][3], v[0][4, ::2] = 0.0, nan, inf, -inf, -inf
    v[0][5], v[0][6, 3], v[0][7] = -0.0, 3e38, torch.linspace(-1e-38, 1e-38, 64).bfloat16()
    want = torch.ops.b300kit.draw(*v, SEED >> 1, TAG)
    assert torch.equal(torch.ops.b300kit.draw(*(t.to(gpu) for t in v), SEED >> 1, TAG).cpu(), want)


@pytest.mark.gpu
def test_bad_arguments_are_named(gpu):
    v = inputs(2, device=gpu)
    out = torch.empty(2, dtype=torch.int32, device=gpu)
    with pytest.raises(ArgumentError, match=r"'top_k'.*dtype torch.int32"):
        ops.run(*v[:3], v[3].long(), *v[4:], SEED, TAG, out)
    with pytest.raises(ArgumentError, match=r"'logits'.*multiple of 4"):
        ops.run(v[0][:, :250].contiguous(), *v[1:], SEED, TAG, out)
