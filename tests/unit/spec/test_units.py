"""Numbers written with a unit."""

from __future__ import annotations

import pytest

from kit.spec.units import convert, has_unit, unit_of


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("power_limit_w", "W"),
        ("sm_clock_mhz", "MHz"),
        ("mhz", "MHz"),
        ("total_gib_min", "GiB"),
        ("memlock_kib", "KiB"),
        ("fabric_wait_s", "seconds"),
        ("sms", ""),
        ("count", ""),
        ("max_cstate_latency_us", "microseconds"),
    ],
)
def test_the_name_tells_the_unit(key: str, unit: str) -> None:
    assert unit_of(key) == unit


@pytest.mark.parametrize(
    ("value", "unit", "number"),
    [
        ("1.1kW", "W", "1100"),
        ("1100 W", "W", "1100"),
        ("2.032GHz", "MHz", "2032"),
        ("64GiB", "KiB", "67108864"),
        ("512MiB", "GiB", "0.5"),
        ("2min", "seconds", "120"),
        ("10GB", "GiB", None),
        ("32G", "GiB", None),
        ("5W", "MHz", None),
        ("12", "W", None),
    ],
)
def test_only_exact_conversions_are_offered(value: str, unit: str, number: str | None) -> None:
    assert convert(value, unit) == number


def test_a_bare_number_has_no_unit() -> None:
    assert has_unit("32GiB")
    assert not has_unit("32")
    assert not has_unit(32)
