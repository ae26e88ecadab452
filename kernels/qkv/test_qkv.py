"""K3: the reference against torch, and the kernel against the reference: q, its codes, the bytes of the paged cache."""

import numpy as np
import pytest
import torch

from ..common import compare, rounding, tensors
from ..common.errors import ArgumentError
from ..common.shapes import KV, KV_LAYOUTS, Q_LORA, RMS_EPS, ROPE, kv_page_bytes
from ..common.testing import ROWS, bf16_values, bits, generator, misaligned, poison
from ..launch import Launch
from . import ops, reference

POSITIONS = 300
PAGE, PAGES = 64, 4


def inputs(rows, seed=0, device="cpu", scale=1.0, layout="v4", wide=False):
    rng = generator(seed)
    angle = rng.uniform(0, 2 * np.pi, (POSITIONS, ROPE // 2))
    table = np.stack([np.cos(angle), np.sin(angle)], -1).reshape(POSITIONS, ROPE).astype(np.float32)
    values = {
        "qkv": bf16_values(rng, rows, Q_LORA + KV, scale=scale),
        "q_weight": bf16_values(rng, Q_LORA),
        "kv_weight": bf16_values(rng, KV),
        "cos_sin": torch.from_numpy(table),
        "positions": torch.from_numpy(rng.integers(0, POSITIONS, rows).astype(np.int64 if wide else np.int32)),
        "slots": torch.from_numpy(rng.permutation(PAGE * PAGES)[:rows].astype(np.int32)),
        "cache": torch.full((PAGES, kv_page_bytes(layout, PAGE)), 0xCB, dtype=torch.uint8),
    }
    return {name: value.to(device) for name, value in values.items()}


def outputs(rows, device, scale_layout=0):
    out = (
        torch.empty(rows, Q_LORA, dtype=torch.bfloat16, device=device),
        torch.empty(rows, Q_LORA, dtype=torch.float8_e4m3fn, device=device),
        torch.empty(ops.scale_bytes(rows, max(scale_layout, 0)), dtype=torch.uint8, device=device),
    )
    poison(*out)
    return out


def run(v, out, layout="v4", scale_layout=0, launch=None, eps=RMS_EPS):
    names = ("qkv", "q_weight", "kv_weight", "cos_sin", "positions", "slots", "cache")
    ops.run(*(v[n] for n in names), eps, layout, PAGE, scale_layout, *out, launch=launch)
    torch.cuda.synchronize()
    return out


def cache_rows(cache, layout, slots):
    """The data and scale bytes of each slot, and the cache with those bytes blanked (what must be untouched)."""
    data_bytes, scale_bytes, _ = KV_LAYOUTS[layout]
    rest = cache.cpu().numpy().copy()
    rows = []
    for slot in slots:
        page, at = slot // PAGE, slot % PAGE
        data = slice(at * data_bytes, (at + 1) * data_bytes)
        used = 7 if layout == "v4" else scale_bytes
        scale = slice(PAGE * data_bytes + at * scale_bytes, PAGE * data_bytes + at * scale_bytes + used)
        rows.append((rest[page, data].copy(), rest[page, scale].copy()))
        rest[page, data] = rest[page, scale] = 0xCB
    return rows, rest


def judge(v, out, layout="v4", eps=RMS_EPS):
    """q to 1 ulp, its codes from the kernel's own q to the bit; cache codes equal, but for values at a rounding tie in fp32."""
    need = tensors.need
    value = need(v["qkv"])
    want_q, _, _ = reference.query(value[:, :Q_LORA], need(v["q_weight"]), eps)
    compare.assert_bf16(need(out[0]), want_q, "q")
    codes, scales = rounding.quantise(need(out[0]))
    found = out[1].view(torch.uint8).cpu().numpy()
    nan = (codes & 0x7F) == 0x7F
    assert np.array_equal(found[~nan], codes[~nan]) and ((found[nan] & 0x7F) == 0x7F).all(), "q codes"
    assert np.array_equal(out[2].cpu().numpy(), scales.reshape(-1)), "q scales"

    angles = need(v["cos_sin"])[v["positions"].cpu().numpy()]
    rows = reference.kv_rows(value[:, Q_LORA:], need(v["kv_weight"]), angles, eps, layout)
    slots = v["slots"].cpu().tolist()
    live = [i for i, slot in enumerate(slots) if 0 <= slot < PAGE * PAGES]
    found_rows, rest = cache_rows(v["cache"], layout, [slots[i] for i in live])
    assert (rest == 0xCB).all(), "bytes outside the written slots changed"
    off = total = 0
    for i, (data, scale) in zip(live, found_rows, strict=True):
        row = rows[i]
        assert np.array_equal(scale, row.scale[: len(scale)]), f"scale bytes of row {i}"
        coded = 448 if layout == "v4" else 512
        nan = (row.data[:coded] & 0x7F) == 0x7F
        assert ((data[:coded][nan] & 0x7F) == 0x7F).all()
        different = (data[:coded] != row.data[:coded]) & ~nan
        off, total = off + int(different.sum()), total + coded
        step = np.abs(rounding.e4m3_values(data[:coded][different]) - row.scaled[different])
        near = np.abs(rounding.e4m3_values(row.data[:coded][different]) - row.scaled[different])
        # v41 rounds to bf16 first: a bf16 flip moves the value by one bf16 step before it is coded.
        slack = 2.0**-7 if layout == "v41" else 1e-5
        assert (step - near <= slack * np.abs(row.scaled[different]) + 1e-12).all(), f"a code of row {i} is not a tie"
        if layout == "v4":
            tail = lambda b: (b[448:].copy().view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)  # noqa: E731
            compare.assert_bf16(tail(data), tail(row.data), f"rope of row {i}", fraction=0.05)
    assert off <= max(2, 2e-3 * total), f"{off} of {total} codes differ"


# --- the reference, anywhere ------------------------------------------------------------------------------------------
def test_reference_rope_turns_pairs_as_complex_numbers():
    rng = generator(1)
    tail, angle = rng.standard_normal((5, ROPE)), rng.uniform(0, 6, (5, ROPE // 2))
    turned = (tail[:, 0::2] + 1j * tail[:, 1::2]) * np.exp(1j * angle)
    got = reference._rope(tail, np.stack([np.cos(angle), np.sin(angle)], -1).reshape(5, ROPE))
    assert np.allclose(got[:, 0::2], turned.real, atol=1e-12) and np.allclose(got[:, 1::2], turned.imag, atol=1e-12)


@pytest.mark.parametrize("layout", ["v4", "v41"])
def test_reference_rows_stand_for_their_values(layout):
    v = inputs(4, layout=layout)
    x, w = tensors.need(v["qkv"])[:, Q_LORA:], tensors.need(v["kv_weight"])
    still = np.tile([1.0, 0.0], (4, ROPE // 2))
    group = 64 if layout == "v4" else 32
    for row, value in zip(reference.kv_rows(x, w, still, RMS_EPS, layout), reference.norm(x, w, RMS_EPS), strict=True):
        coded = 448 if layout == "v4" else 512
        assert len(row.data) == KV_LAYOUTS[layout][0] and len(row.scale) == KV_LAYOUTS[layout][1]
        scale = np.ldexp(1.0, row.scale[: coded // group].astype(int) - 127).repeat(group)
        back = rounding.e4m3_values(row.data[:coded]) * scale
        assert (np.abs(back - value[:coded]) <= np.abs(value[:coded]) * 0.07 + scale * 2.0**-9).all()
        assert np.abs(rounding.e4m3_values(row.data[:coded])).max() <= 448


@pytest.mark.parametrize("layout", ["v4", "v41"])
def test_operator_is_well_formed_on_cpu(layout):
    v = inputs(3, layout=layout)
    names = ("qkv", "q_weight", "kv_weight", "cos_sin", "positions", "slots", "cache")
    torch.library.opcheck(
        torch.ops.b300kit.qkv.default,
        (*(v[n] for n in names), RMS_EPS, layout, PAGE, -1),
        test_utils=("test_schema", "test_faketensor"),
    )
    q, codes, scales = torch.ops.b300kit.qkv(*(v[n] for n in names), RMS_EPS, layout, PAGE, 0)
    judge(v, (q, codes, scales), layout)


# --- the kernel, on a GPU ---------------------------------------------------------------------------------------------
@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
@pytest.mark.parametrize("rows", [0, *ROWS, 200])
def test_against_float64(gpu, rows, layout):
    v = inputs(rows, seed=rows, device=gpu, layout=layout, wide=bool(rows % 2))
    judge(v, run(v, outputs(rows, gpu), layout), layout)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
@pytest.mark.parametrize("scale", [1e-18, 1e-6, 1e4, 1e15])
def test_magnitudes(gpu, layout, scale):
    v = inputs(6, seed=8, device=gpu, layout=layout, scale=scale)
    judge(v, run(v, outputs(6, gpu), layout), layout)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
def test_rows_without_a_slot_and_slots_past_the_cache_are_not_written(gpu, layout):
    v = inputs(8, seed=3, device=gpu, layout=layout)
    v["slots"][2], v["slots"][5], v["slots"][6] = -1, PAGE * PAGES, 2**31 - 1
    judge(v, run(v, outputs(8, gpu), layout), layout)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
def test_a_position_past_the_table_shows_as_nan(gpu, layout):
    v = inputs(2, seed=3, device=gpu, layout=layout)
    v["positions"][1] = POSITIONS
    v["positions"][0] = -1
    run(v, outputs(2, gpu), layout)
    for data, scale in cache_rows(v["cache"], layout, v["slots"].tolist())[0]:
        if layout == "v41":
            assert (scale[-2:] == 255).all() and ((data[448:] & 0x7F) == 0x7F).all() and (scale[:-2] != 255).all()
        else:
            assert np.isnan((data[448:].copy().view("<u2").astype(np.uint32) << 16).view(np.float32)).all()


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0])
def test_extreme_rows(gpu, layout, value):
    v = inputs(3, seed=4, device=gpu, layout=layout)
    v["qkv"][1] = value
    judge(v, run(v, outputs(3, gpu), layout), layout)


@pytest.mark.gpu
@pytest.mark.parametrize("layout", ["v4", "v41"])
@pytest.mark.parametrize("rows", [1, 6, 64])
def test_same_bits_at_every_grid(gpu, rows, layout):
    seen = set()
    for blocks in (1, 2, 7, 131, 132, 148, 152):
        for pdl in (False, True):
            v = inputs(rows, seed=1, device=gpu, layout=layout)
            out = run(v, outputs(rows, gpu), layout, launch=Launch(blocks, pdl=pdl))
            seen.add(tuple(bits(t) for t in (*out, v["cache"])))
    assert len(seen) == 1


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("qkv", lambda t: t.float(), "dtype torch.bfloat16"),
        ("qkv", misaligned, "16-byte aligned"),
        ("positions", lambda t: t.float(), "torch.int32 or torch.int64"),
        ("slots", lambda t: t.long(), "dtype torch.int32"),
        ("cos_sin", lambda t: t[:, :32], r"shape \(300, 64\)"),
        ("cache", lambda t: t[:, :-16], r"shape \(4, "),
        ("kv_weight", lambda t: t[:-8], r"shape \(512,\)"),
    ],
)
def test_bad_arguments_are_named(gpu, name, change, message):
    v = inputs(2, device=gpu)
    v[name] = change(v[name])
    with pytest.raises(ArgumentError, match=f"'{name}'.*{message}"):
        run(v, outputs(2, gpu))


@pytest.mark.gpu
def test_bad_layouts_are_named(gpu):
    v = inputs(1, device=gpu)
    with pytest.raises(ArgumentError, match="'layout'"):
        run(v, outputs(1, gpu), layout="v5")
