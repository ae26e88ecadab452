"""The kernel budget's arithmetic, on made-up timelines."""

import pytest

from kernels.chain.budget import Span, budget, short_name, union


def test_busy_time_is_a_union():
    spans = [Span("a", 0, 10), Span("b", 5, 12), Span("a", 20, 21), Span("c", 6, 7)]
    assert union(spans) == 13
    found = budget(spans, 1)
    assert (found["kernels"], found["wall_us"], found["busy_us"], found["idle_us"], found["overlap_us"]) == (4, 21, 13, 8, 6)


def test_rows_and_buckets_are_per_layer_and_add_up():
    spans = [Span("a", 0, 2), Span("b", 2, 6), Span("a", 6, 8), Span("b", 8, 70)]
    found = budget(spans, 2)
    assert [(r["kernel"], r["count"], r["average_us"], r["total_us"]) for r in found["rows"]] == [
        ("b", 1, 33, 33),
        ("a", 1, 2, 2),
    ]
    assert found["buckets"]["0-3 us"] == {"count": 1, "total_us": 2} and found["buckets"]["50-inf us"]["count"] == 0.5
    assert sum(b["total_us"] for b in found["buckets"].values()) == sum(r["total_us"] for r in found["rows"])


def test_an_empty_timeline_is_refused():
    with pytest.raises(ValueError, match="found 0 and 4"):
        budget([], 4)


@pytest.mark.parametrize(
    ("signature", "name"),
    [
        ("void (anonymous namespace)::gate_kernel((anonymous namespace)::Args)", "gate_kernel"),
        ("void a::b<3, true>(int*)", "a::b<3, true>"),
        ("nvjet_tst_64x8", "nvjet_tst_64x8"),
    ],
)
def test_names_are_short(signature, name):
    assert short_name(signature) == name
