"""Comparisons that NaN cannot pass. All take numpy arrays and raise AssertionError with figures."""

import numpy as np
from numpy.typing import NDArray


def ulp_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.int64]:
    """Steps between bf16 values; NaN equals NaN only, +0 equals -0, an infinity is one step past the largest value."""

    def order(x: NDArray[np.float64]) -> NDArray[np.int64]:
        bits = (x.astype(np.float32).view(np.uint32) >> 16).astype(np.int64)
        return np.where(bits & 0x8000, -(bits & 0x7FFF), bits)

    both, one = np.isnan(a) & np.isnan(b), np.isnan(a) ^ np.isnan(b)
    return np.where(both, 0, np.where(one, 1 << 20, np.abs(order(a) - order(b))))


def assert_bf16(
    found: NDArray[np.float64], expected: NDArray[np.float64], what: str, ulp: int = 1, fraction: float = 1e-3
) -> None:
    """At most ``ulp`` bf16 steps anywhere, and any step on at most ``fraction`` of the elements (one is always allowed)."""
    distance = ulp_distance(found, expected)
    worst, off = int(distance.max(initial=0)), int((distance > 0).sum())
    assert worst <= ulp, f"{what}: {worst} ulp at {np.unravel_index(int(distance.argmax()), distance.shape)}, allowed {ulp}"
    assert off <= max(1, fraction * distance.size), f"{what}: {off} of {distance.size} elements differ, allowed {fraction:.2%}"


def assert_close(
    found: NDArray[np.float64], expected: NDArray[np.float64], what: str, relative: float, absolute: float = 0.0
) -> None:
    """|found - expected| <= absolute + relative*|expected|; NaN only where NaN is expected."""
    both = np.isnan(found) & np.isnan(expected)
    with np.errstate(invalid="ignore"):
        good = both | (found == expected) | (np.abs(found - expected) <= absolute + relative * np.abs(expected))
    assert good.all(), (
        f"{what}: {(~good).sum()} of {good.size} off; "
        f"first: found {found[~good][0]!r}, expected {expected[~good][0]!r}, relative {relative}"
    )


def assert_between(
    found: NDArray[np.float64], low: NDArray[np.float64], value: NDArray[np.float64], high: NDArray[np.float64], what: str
) -> None:
    """low <= found <= high everywhere, found == value on all but 0.1% of the elements; NaN exactly where ``value`` is NaN."""
    nan = np.isnan(value)
    good = np.where(nan, np.isnan(found), (found >= low) & (found <= high))
    assert good.all(), (
        f"{what}: {(~good).sum()} of {good.size} outside; first at {np.argwhere(~good)[0]}: "
        f"found {found[~good][0]!r}, expected {value[~good][0]!r} in [{low[~good][0]!r}, {high[~good][0]!r}]"
    )
    off = int((~nan & (found != value)).sum())
    assert off <= max(1, 1e-3 * found.size), f"{what}: {off} of {found.size} elements differ from the rounded value, allowed 0.1%"
