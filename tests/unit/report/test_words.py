"""Small words and numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.errors import ExitCode
from kit.report import row, rows, words
from kit.report.clean import one_line, visible

from . import sample


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 ms"), (0.06, "60 ms"), (0.0949, "95 ms"), (0.1, "0.1 s"), (9.94, "9.9 s"), (9.96, "10 s"), (59.4, "59 s"),
     (59.6, "1 min 00 s"), (200, "3 min 20 s"), (3599.7, "1 h 00 min"), (7500, "2 h 05 min"), (None, "not ended")],
)  # fmt: skip
def test_seconds(value: float | None, text: str) -> None:
    assert words.seconds(value) == text


@given(st.sets(st.integers(0, 300)))
def test_ranges_name_each_number_once(numbers: set[int]) -> None:
    text = words.ranges(numbers)
    parts = [] if text == "none" else [part.partition("-") for part in text.split(", ")]
    back = [n for a, _, b in parts for n in range(int(a), int(b or a) + 1)]
    assert back == sorted(numbers)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([], "no GPU"),
        ([(0, "a")], "a"),
        ([(0, "a"), (1, "a")], "a (all 2 GPUs)"),
        ([(0, "a"), (1, "a"), (2, "b")], "GPUs 0-1: a; GPU 2: b"),
        ([(n, str(n % 2)) for n in range(64)], "32 GPUs: 0; 32 GPUs: 1"),
    ],
)
def test_equal_values_are_told_together(values: list[tuple[int, str]], text: str) -> None:
    assert words.grouped(values, "GPU", "GPUs") == text


def test_every_exit_code_has_words() -> None:
    assert all(not words.outcome(code).startswith("exit") for code in ExitCode)
    assert words.outcome(137) == "ended by signal 9"
    assert words.outcome(99) == "exit 99"


def test_a_time_that_is_none_is_shown_as_it_is() -> None:
    assert words.moment("2026-11-29T20:40:11+01:00") == "2026-11-29 19:40:11 UTC"
    assert words.moment("<now>") == "<now>"


@given(st.text())
def test_visible_text_keeps_nothing_that_acts(text: str) -> None:
    assert all(c in "\t\n" or (c.isprintable() or c == "\xa0" or c.isspace() or ord(c) > 0x9F) for c in visible(text))
    assert "\n" not in one_line(text)


def test_each_area_is_there_and_an_unknown_gpu_stack_is_one_row() -> None:
    whole = rows.areas(sample.facts(), sample.spec())
    assert [area.title for area in whole][:3] == ["Host", "GPUs", "Driver"]
    broken = rows.areas(sample.facts(gpu=sample.unknown("NVML did not answer in 20 s")))
    gpus = next(area for area in broken if area.title == "GPUs")
    assert [(r.found, r.verified) for r in gpus.rows] == [("not verified: NVML did not answer in 20 s", False)]


def test_a_fact_that_is_unknown_on_one_gpu_is_not_verified_as_a_whole() -> None:
    gpus = [sample.gpu(n) for n in range(4)]
    gpus[2]["sms"] = sample.unknown("libcuda is missing")
    stack = {**sample.facts_document()["gpu"], "gpus": gpus}
    area = next(a for a in rows.areas(sample.facts(gpu=stack), sample.spec()) if a.title == "GPUs")
    sms = next(r for r in area.rows if r.label == "SMs (CUDA driver)")
    assert sms == row.Row("SMs (CUDA driver)", "GPUs 0-1, 3: 148; GPU 2: not verified: libcuda is missing", "148", verified=False)


def test_no_known_fact_is_shown_as_a_python_value() -> None:
    for area in rows.areas(sample.facts(), sample.spec()):
        for one in area.rows:
            assert not {"True", "False", "None"} & set(one.found.replace(";", " ").split()), one
            assert "None" not in one.declared
