"""Launch choices and tuned tables: pure, no GPU, no torch."""

import json

import pytest

from kernels.launch import Gpu, Launch, Table, choose, gemv_fits, load_table

H200, B300 = Gpu("NVIDIA H200", 90, 132), Gpu("NVIDIA B300", 103, 148)


@pytest.mark.parametrize("gpu", [H200, B300])
@pytest.mark.parametrize("op", ["boundary", "stats", "gate", "qkv", "qkvproj", "oproj", "gemv", "head"])
@pytest.mark.parametrize("rows", [1, 6, 8, 9, 64, 256])
def test_every_choice_is_launchable(gpu, op, rows):
    launch = choose(op, rows, gpu)
    assert launch.blocks >= 1 and launch.cluster in (1, 2, 4, 5, 8)


def test_few_rows_are_spread_and_many_are_not():
    assert choose("boundary", 8, H200).cluster == 5
    assert choose("boundary", 300, H200).cluster == 1
    assert choose("stats", 6, H200).blocks == 120


def test_no_rows_and_unknown_operators_are_refused():
    with pytest.raises(ValueError, match="at least one row"):
        choose("stats", 0, H200)
    with pytest.raises(ValueError, match="unknown operator 'nope'"):
        choose("nope", 1, H200)


@pytest.mark.parametrize("shape", [(32768, 1280), (5120, 8192), (8192, 1280), (5120, 2048), (4608, 5120), (5120, 2304)])
def test_the_models_shapes_have_a_kernel(shape):
    gemv_fits(*shape)


@pytest.mark.parametrize("shape", [(100, 1280), (128, 100), (0, 1280), (16, 1280), (128, 64 * 8 * 100)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match="N a multiple of 32, K one of 512, 1024, 1280"):
        gemv_fits(*shape)


def test_a_streaming_kernel_takes_one_block_an_sm():
    assert choose("gemv", 1, H200).blocks == 132 and choose("head", 8, B300).blocks == 148


def table(tmp_path, **changes):
    provenance = {"gpu": "NVIDIA H200", "sm_count": 132, "driver": "580.1", "date": "2026-11-29", "sm_clock_mhz": 1980}
    document = {"provenance": {**provenance, **changes}, "entries": {"boundary": [{"rows_to": 4, "blocks": 9, "cluster": 2}]}}
    path = tmp_path / "table.json"
    path.write_text(json.dumps(document))
    return path


def test_a_matching_table_is_used_within_its_range(tmp_path):
    found = load_table(table(tmp_path), H200, "580.1")
    assert "tuned choices for boundary" in found.note
    assert choose("boundary", 4, H200, found) == Launch(9, 2)
    assert choose("boundary", 5, H200, found) == choose("boundary", 5, H200)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"gpu": "NVIDIA B300"}, "measured on"), ({"driver": "1"}, "measured on"), ({"sm_count": 131}, "measured on")],
)
def test_a_foreign_table_is_refused_aloud(tmp_path, change, words):
    found = load_table(table(tmp_path, **change), H200, "580.1")
    assert words in found.note and not found.entries


def test_missing_broken_and_empty_tables_are_said(tmp_path):
    assert "no such table" in load_table(tmp_path / "none.json", H200, "1").note
    (tmp_path / "bad.json").write_text("{}")
    assert "not a table" in load_table(tmp_path / "bad.json", H200, "1").note
    path = table(tmp_path)
    path.write_text(json.dumps({**json.loads(path.read_text()), "entries": {}}))
    assert "table is empty" in load_table(path, H200, "580.1").note
    assert Table().note == "no table: built-in choices"
