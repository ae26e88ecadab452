"""K5: the reference against torch, and the kernel against the reference: y, its codes and scales."""

import numpy as np
import pytest
import torch

from ..common import rounding, tensors
from ..common.errors import ArgumentError
from ..common.shapes import HEAD, O_GROUP_K, O_LORA, ROPE
from ..common.testing import SM_COUNTS, bf16_values, bits, generator, misaligned, poison
from ..gemv.reference import values
from ..launch import Launch
from . import ops, reference

POSITIONS = 300


def inputs(rows, groups=2, seed=0, device="cpu", fp8=False, wide=False, scale=1.0):
    rng = generator(seed)
    angle = rng.uniform(0, 2 * np.pi, (POSITIONS, ROPE // 2))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).reshape(POSITIONS, ROPE).astype(np.float32)
    n = groups * O_LORA
    v = {
        "o": bf16_values(rng, rows, groups * 8, HEAD, scale=scale),
        "weight": None,
        "scales": None,
        "cos_sin": torch.from_numpy(table),
        "positions": torch.from_numpy(rng.integers(0, POSITIONS, rows).astype(np.int64 if wide else np.int32)),
    }
    if fp8:
        codes = rng.integers(0, 256, (n, O_GROUP_K)).astype(np.uint8)
        codes[(codes & 0x7F) == 0x7F] = 0x7E
        v["weight"] = tensors.codes(codes)
        v["scales"] = torch.from_numpy(rng.integers(112, 118, (n // 32, O_GROUP_K // 32)).astype(np.uint8))
    else:
        v["weight"] = bf16_values(rng, n, O_GROUP_K, scale=0.02)
    return {name: value if value is None else value.to(device) for name, value in v.items()}


NAMES = ("o", "weight", "scales", "cos_sin", "positions")


def outputs(v, scale_layout=0):
    rows, n, device = len(v["o"]), v["o"].shape[1] // 8 * O_LORA, v["o"].device
    out = (
        torch.empty(rows, n, dtype=torch.bfloat16, device=device),
        torch.empty(rows, n, dtype=torch.float8_e4m3fn, device=device),
        torch.empty(ops.scale_bytes(rows, n, scale_layout), dtype=torch.uint8, device=device),
    )
    poison(*out)
    return out


def run(v, scale_layout=0, launch=None):
    out = outputs(v, scale_layout)
    ops.run(*(v[n] for n in NAMES), scale_layout, *out, launch=launch)
    torch.cuda.synchronize()
    return out


def dense(v):
    if v["scales"] is None:
        return tensors.need(v["weight"]).reshape(-1, O_LORA, O_GROUP_K)
    return values(v["weight"].view(torch.uint8).cpu().numpy(), v["scales"].cpu().numpy()).reshape(-1, O_LORA, O_GROUP_K)


def judge(v, out, scale_layout=0):
    """y within bf16's half step plus 1e-4 of the sum of magnitudes (a rope tie moves an x by one bf16 step), relative L2 2e-3;
    codes and scales exactly those of the kernel's own y."""
    angles, weight = tensors.need(v["cos_sin"])[v["positions"].cpu().numpy()], dense(v)
    want, found = reference.project(tensors.need(v["o"]), angles, weight), tensors.need(out[0])
    turned = reference.turn_back(tensors.need(v["o"]), angles).reshape(len(want), len(weight), O_GROUP_K)
    size = np.einsum("tgk,grk->tgr", np.abs(turned), np.abs(weight)).reshape(want.shape)
    good = np.abs(found - want) <= 2.0**-8 * np.abs(want) + 1e-4 * size
    assert good.all(), f"{(~good).sum()} of {good.size} elements off"
    if want.size:
        assert np.linalg.norm(found - want) <= 2e-3 * np.linalg.norm(want)
    codes, scales = rounding.quantise(found)
    assert np.array_equal(out[1].view(torch.uint8).cpu().numpy(), codes), "codes"
    flat = scales.reshape(-1)
    if scale_layout == 1 and want.size:
        flat, written = rounding.tiled_scales(scales), rounding.tiled_scales(np.ones_like(scales)) == 1
        assert np.array_equal(out[2].cpu().numpy()[written], flat[written]), "scales"
    else:
        assert np.array_equal(out[2].cpu().numpy(), flat), "scales"


# --- the reference, anywhere ------------------------------------------------------------------------------------------
def test_turning_back_undoes_the_rope():
    v = inputs(3)
    angles = tensors.need(v["cos_sin"])[v["positions"].numpy()]
    o = tensors.need(v["o"])
    back = reference.turn_back(o, angles)
    assert np.array_equal(back[..., : HEAD - ROPE], o[..., : HEAD - ROPE])
    pairs = (o[..., HEAD - ROPE :: 2] + 1j * o[..., HEAD - ROPE + 1 :: 2]) * (angles[:, None, 0::2] - 1j * angles[:, None, 1::2])
    assert np.allclose(back[..., HEAD - ROPE :: 2], pairs.real, rtol=2.0**-8, atol=1e-9)
    assert np.allclose(back[..., HEAD - ROPE + 1 :: 2], pairs.imag, rtol=2.0**-8, atol=1e-9)


@pytest.mark.parametrize("fp8", [False, True])
def test_operator_is_well_formed_on_cpu(fp8):
    v = inputs(2, groups=1, fp8=fp8)
    arguments = (*(v[n] for n in NAMES), 0)
    torch.library.opcheck(torch.ops.b300kit.oproj.default, arguments, test_utils=("test_faketensor",))
    judge(v, torch.ops.b300kit.oproj(*arguments))


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize(("rows", "groups"), [(0, 2), (1, 8), (2, 2), (3, 1), (5, 2), (6, 8), (7, 2), (8, 2)])
def test_against_float64(gpu, rows, groups, fp8):
    v = inputs(rows, groups, seed=rows, device=gpu, fp8=fp8, wide=bool(rows % 2))
    layout = rows % 2
    judge(v, run(v, layout), layout)


@pytest.mark.gpu
@pytest.mark.parametrize("fp8", [False, True])
@pytest.mark.parametrize("rows", [1, 6, 8])
def test_same_bits_at_every_grid(gpu, rows, fp8):
    v = inputs(rows, 8 if rows == 6 else 2, seed=1, device=gpu, fp8=fp8)
    seen = {
        tuple(bits(t) for t in run(v, launch=Launch(blocks, pdl=pdl))) for blocks in (1, 3, *SM_COUNTS) for pdl in (False, True)
    }
    assert len(seen) == 1


@pytest.mark.gpu
def test_a_row_has_the_same_bits_alone_and_in_a_batch(gpu):
    v = inputs(8, seed=2, device=gpu, fp8=True)
    whole = run(v)
    for row in (0, 3, 7):
        one = slice(row, row + 1)
        assert bits(run(dict(v, o=v["o"][one].contiguous(), positions=v["positions"][one].contiguous().clone()))[0][0]) == bits(
            whole[0][row]
        )


@pytest.mark.gpu
@pytest.mark.parametrize("scale", [1e-15, 1e15])
def test_magnitudes(gpu, scale):
    v = inputs(6, seed=3, device=gpu, scale=scale, fp8=True)
    judge(v, run(v))


@pytest.mark.gpu
def test_bad_rows_show_and_stay_apart(gpu):
    v = inputs(8, seed=4, device=gpu)
    clean = run(v)
    v["positions"][5], v["positions"][6] = POSITIONS, -1
    v["o"][3, 0, 5] = float("nan")
    out = run(v)
    assert torch.isnan(out[0][3][:O_LORA]).all() and not torch.isnan(out[0][3][O_LORA:]).any()
    assert torch.isnan(out[0][5]).all() and torch.isnan(out[0][6]).all()
    assert (out[2].view(8, -1)[5] == 255).all() and ((out[1].view(torch.uint8)[5] & 0x7F) == 0x7F).all()
    for row in (0, 1, 2, 4, 7):
        assert all(bits(a[row]) == bits(b[row]) for a, b in zip(out[:2], clean[:2], strict=True))


@pytest.mark.gpu
def test_only_codes_or_only_values(gpu):
    v = inputs(3, seed=5, device=gpu)
    both = run(v)
    none = torch.empty(0, dtype=torch.bfloat16, device=gpu)
    _, y8, scale = outputs(v)
    ops.run(*(v[n] for n in NAMES), 0, none, y8, scale)
    y, _, _ = outputs(v)
    ops.run(*(v[n] for n in NAMES), -1, y, none, none)
    assert [bits(t) for t in (y, y8, scale)] == [bits(t) for t in both]


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("o", lambda t: t.float(), "dtype torch.bfloat16"),
        ("o", misaligned, "16-byte aligned"),
        ("o", lambda t: t.repeat(5, 1, 1), "at most 8 rows"),
        ("o", lambda t: t[:, :7], "multiple of 8 heads"),
        ("weight", lambda t: t[:-8], r"shape \(2048, 4096\)"),
        ("positions", lambda t: t.float(), "torch.int32 or torch.int64"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v)
