"""The unit each number of a spec is in, told by the end of its name, and what a value with another unit would be in it."""

from __future__ import annotations

import re
from fractions import Fraction

_SUFFIXES = {
    "mhz": "MHz",
    "khz": "kHz",
    "w": "W",
    "mib": "MiB",
    "gib": "GiB",
    "kib": "KiB",
    "s": "seconds",
    "us": "microseconds",
    "gbps": "GB/s",
    "min": "",
}
_SCALES: dict[str, dict[str, Fraction]] = {
    "hertz": {"hz": Fraction(1), "khz": Fraction(10**3), "mhz": Fraction(10**6), "ghz": Fraction(10**9)},
    "watt": {"mw": Fraction(1, 1000), "w": Fraction(1), "kw": Fraction(1000)},
    "byte": {
        "b": Fraction(1),
        "kib": Fraction(2**10),
        "mib": Fraction(2**20),
        "gib": Fraction(2**30),
        "tib": Fraction(2**40),
        "kb": Fraction(10**3),
        "mb": Fraction(10**6),
        "gb": Fraction(10**9),
        "tb": Fraction(10**12),
    },
    "second": {
        "us": Fraction(1, 10**6),
        "microseconds": Fraction(1, 10**6),
        "ms": Fraction(1, 1000),
        "s": Fraction(1),
        "sec": Fraction(1),
        "seconds": Fraction(1),
        "min": Fraction(60),
        "h": Fraction(3600),
    },
    "rate": {"gb/s": Fraction(1), "tb/s": Fraction(1000), "mb/s": Fraction(1, 1000), "gbit/s": Fraction(1, 8)},
}
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z][A-Za-z/]*)\s*\Z")


def unit_of(key: str) -> str:
    """The unit of the value under ``key``; "" when it has none (a count)."""
    parts = [part for part in key.split("_") if part not in ("min", "max")]
    return _SUFFIXES.get(parts[-1], "") if parts else ""


def has_unit(value: object) -> bool:
    """Whether a value is a number written with a unit, as in ``1.1kW``."""
    return isinstance(value, str) and _QUANTITY.match(value) is not None


def convert(value: str, unit: str) -> str | None:
    """``value`` (a number with a unit) as a number of ``unit``, exactly; None when it is not one, or not exact."""
    match = _QUANTITY.match(value)
    if not match or not unit:
        return None
    given, wanted = match.group(2).lower(), unit.lower()
    for scale in _SCALES.values():
        if given in scale and wanted in scale:
            number = Fraction(match.group(1)) * scale[given] / scale[wanted]
            if number.denominator == 1:
                return str(number.numerator)
            text = f"{float(number):.6g}"
            return text if Fraction(text) == number else None
    return None
