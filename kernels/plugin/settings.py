"""Which operators are swapped and up to how many rows, from one environment variable. Pure."""

from __future__ import annotations

ENVIRONMENT = "B300KIT_KERNELS"
VERSIONS = ("0.5.23",)
LIMITS = {"stats": (31, 256), "wo_a": (8, 8)}  # name -> rows by default (above, SGLang takes another way), rows at most


def parse(text: str) -> tuple[dict[str, int], list[str]]:
    """ "stats=8,wo_a" -> ({"stats": 8, "wo_a": 8}, []); all that is wrong comes back in the list.

    Empty or "off": nothing. "all": everything, with the default limits.
    """
    if text.strip() in ("", "off"):
        return {}, []
    if text.strip() == "all":
        return {name: default for name, (default, _) in LIMITS.items()}, []
    switches: dict[str, int] = {}
    wrong: list[str] = []
    for part in text.split(","):
        name, equals, number = (piece.strip() for piece in part.partition("="))
        if name not in LIMITS:
            wrong.append(f"expected off, all or some of {', '.join(LIMITS)}, found {part.strip()!r}")
        elif name in switches:
            wrong.append(f"{name} is there twice")
        else:
            default, most = LIMITS[name]
            rows = int(number) if number.isascii() and number.isdigit() else (-1 if equals else default)
            if not 1 <= rows <= most:
                wrong.append(f"{name}: expected 1 to {most} rows, found {number!r}")
            switches[name] = rows
    return switches, wrong
