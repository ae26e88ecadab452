"""The core map: each package a block, its NUMA nodes inside, each physical core a cell that says who sits there. Pure.

Speed is a cell's fill and border (fast, slow, hatched when not verified); who sits there is a labelled badge. Neither
relies on hue alone: every badge has its text, and fast and slow differ in lightness and border too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.sax.saxutils import escape, quoteattr

from kit.report.clean import one_line
from kit.report.words import ranges

Role = Literal["scheduler", "detokenizer", "tokenizer", "os", "rest"]
Speed = Literal["fast", "slow", "unknown"]

LABELS: Mapping[Role, str] = {"scheduler": "TP", "detokenizer": "DETOK", "tokenizer": "TOK", "os": "OS", "rest": "rest"}
MEANING: Mapping[Role, str] = {
    "scheduler": "scheduler of a GPU rank",
    "detokenizer": "detokenizer",
    "tokenizer": "tokenizer",
    "os": "operating system and interrupts",
    "rest": "rest of the engine",
}


@dataclass(frozen=True)
class Occupant:
    """Who sits on a core. ``label`` is drawn (at most six characters), ``text`` is said."""

    role: Role
    label: str
    text: str


@dataclass(frozen=True)
class Cell:
    """One physical core."""

    cpu: int
    """Its lowest logical CPU."""
    cpus: tuple[int, ...]
    package: int | None
    """None: not verified."""
    node: int | None
    speed: Speed
    detail: str
    """Why it is called fast or slow, for the hover text."""
    occupant: Occupant | None = None

    def text(self) -> str:
        """Everything about the core in one sentence."""
        place = f"package {_or_not_verified(self.package)}, NUMA node {_or_not_verified(self.node)}"
        who = self.occupant.text if self.occupant else "nobody assigned"
        return one_line(f"Core with CPU {ranges(self.cpus)}: {who}; {self.speed} ({self.detail}); {place}")


@dataclass(frozen=True)
class _Size:
    """Lengths in SVG user units, which are CSS pixels at full width."""

    width: int
    columns: int
    cell_height: int = 38
    gap: int = 4
    inset: int = 10
    label: int = 13

    def cell_width(self, columns: int) -> float:
        return (self.width - 4 * self.inset - (columns - 1) * self.gap) / columns


WIDE = _Size(width=900, columns=16)
NARROW = _Size(width=350, columns=6, cell_height=36, inset=7, label=12)
"""For a phone: the same cells, fewer in a row, never scaled below what can be read."""

STYLE = """
.cm{--cm-ink:#17202a;--cm-soft:#4b5763;--cm-block:#f7f8fa;--cm-line:#8793a0;--cm-node:#ffffff;
--cm-slow:#e8ecf0;--cm-slow-line:#a9b4bf;--cm-fast:#ffd58a;--cm-fast-line:#8a5200;--cm-hatch:#8793a0}
@media (prefers-color-scheme:dark){.cm{--cm-ink:#eef2f6;--cm-soft:#b3bec9;--cm-block:#161c22;--cm-line:#5d6a77;
--cm-node:#1d242b;--cm-slow:#2b343d;--cm-slow-line:#55626f;--cm-fast:#7a5200;--cm-fast-line:#ffc55c;--cm-hatch:#7d8a97}}
@media print{.cm{--cm-ink:#000;--cm-soft:#333;--cm-block:#fff;--cm-line:#666;--cm-node:#fff;--cm-slow:#eee;
--cm-slow-line:#888;--cm-fast:#ffd58a;--cm-fast-line:#000;--cm-hatch:#666;
-webkit-print-color-adjust:exact;print-color-adjust:exact}}
.cm text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:var(--cm-ink)}
.cm .cm-soft{fill:var(--cm-soft)}.cm .cm-block{fill:var(--cm-block);stroke:var(--cm-line)}
.cm .cm-node{fill:var(--cm-node);stroke:var(--cm-slow-line)}
.cm .cm-slow{fill:var(--cm-slow);stroke:var(--cm-slow-line)}
.cm .cm-fast{fill:var(--cm-fast);stroke:var(--cm-fast-line);stroke-width:2}
.cm .cm-unknown{stroke:var(--cm-hatch);stroke-dasharray:3 2}
.cm .cm-unknown~text{paint-order:stroke;stroke:var(--cm-node);stroke-width:4px;stroke-linejoin:round;fill:var(--cm-ink)}
.cm .cm-unknown~.cm-on{stroke:none;fill:#fff}
.cm .cm-hatch{stroke:var(--cm-hatch);stroke-width:1.5}
.cm .cm-scheduler{fill:#0b4f9e}.cm .cm-detokenizer{fill:#00594c}.cm .cm-tokenizer{fill:#6d2f93}.cm .cm-os{fill:#46515c}
.cm text.cm-on{fill:#fff;font-weight:700}
.cm .cm-badge{stroke:#fff;stroke-opacity:.35}
"""


def core_map_svg(cells: Sequence[Cell], title: str, ident: str, size: _Size = WIDE, styled: bool = True) -> str:
    """A complete ``<svg>`` element. ``ident`` makes its inner ids unique in a page (letters, digits, ``-``).

    With ``styled`` it carries :data:`STYLE` itself; in a page that holds the style once it need not.

    All text is escaped. With no cell it says that no core was read.
    """
    body: list[str] = []
    y = 0.0
    for package, of_package in _groups(cells, lambda cell: cell.package):
        y = _package(body, y, package, of_package, ident, size)
    if not cells:
        body.append(f'<text x="{size.inset}" y="24" font-size="14">No core was read on this host.</text>')
        y = 40.0
    y = _legend(body, y + 6, cells, ident, size)
    return (
        f'<svg class="cm" xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size.width} {y:.0f}" width="{size.width}" '
        f'role="img" aria-labelledby="{ident}-t {ident}-d" font-size="{size.label}">'
        f'<title id="{ident}-t">{escape(one_line(title))}</title><desc id="{ident}-d">{escape(summary(cells))}</desc>'
        f"{f'<style>{STYLE}</style>' if styled else ''}"
        f'<defs><pattern id="{ident}-h" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
        f'<line class="cm-hatch" x1="0" y1="0" x2="0" y2="6"/></pattern></defs>{"".join(body)}</svg>'
    )


def summary(cells: Sequence[Cell]) -> str:
    """The map in words, for those who cannot see it and for a terminal."""
    counts = {speed: sum(cell.speed == speed for cell in cells) for speed in ("fast", "slow", "unknown")}
    unknown = f", {counts['unknown']} of unverified speed" if counts["unknown"] else ""
    parts = [f"{len(cells)} physical cores: {counts['fast']} fast, {counts['slow']} slow{unknown}"]
    for role in LABELS:
        seated = [cell for cell in cells if cell.occupant and cell.occupant.role == role]
        if not seated:
            continue
        if role in ("os", "rest"):
            parts.append(f"{MEANING[role]} on {len(seated)} cores")
        else:
            parts += [f"{cell.occupant.text} on CPU {ranges(cell.cpus)} ({cell.speed})" for cell in seated if cell.occupant]
    return one_line("; ".join(parts) + ".")


def _groups(cells: Iterable[Cell], key: Callable[[Cell], int | None]) -> list[tuple[int | None, list[Cell]]]:
    groups: dict[int | None, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(key(cell), []).append(cell)
    return sorted(groups.items(), key=lambda item: (item[0] is None, item[0] or 0))


def _package(body: list[str], y: float, package: int | None, cells: list[Cell], ident: str, size: _Size) -> float:
    inner: list[str] = []
    bottom = y + 30
    for node, of_node in _groups(cells, lambda cell: cell.node):
        bottom = _node(inner, bottom, node, of_node, ident, size)
    fast = sum(cell.speed == "fast" for cell in cells)
    body.append(
        f'<g><rect class="cm-block" x=".5" y="{y + 0.5:.1f}" width="{size.width - 1}" height="{bottom - y:.1f}" rx="8"/>'
        f'<text x="{size.inset}" y="{y + 20:.1f}" font-weight="700">Package {_or_not_verified(package)}</text>'
        f'<text class="cm-soft" x="{size.width - size.inset}" y="{y + 20:.1f}" text-anchor="end">'
        f"{fast} of {len(cells)} cores fast</text>{''.join(inner)}</g>"
    )
    return bottom + 10


def _node(body: list[str], y: float, node: int | None, cells: list[Cell], ident: str, size: _Size) -> float:
    ordered = sorted(cells, key=lambda cell: cell.cpu)
    rows = -(-len(ordered) // size.columns)
    # A machine with few cores keeps cells of a cell's size instead of a few wide ones.
    width = size.cell_width(size.columns)
    height = 22 + rows * size.cell_height + (rows - 1) * size.gap + size.inset
    body.append(
        f'<rect class="cm-node" x="{size.inset}" y="{y:.1f}" width="{size.width - 2 * size.inset}" height="{height}" rx="6"/>'
        f'<text class="cm-soft" x="{2 * size.inset}" y="{y + 16:.1f}" font-size="{size.label - 1}">'
        f"NUMA node {_or_not_verified(node)}</text>"
    )
    for index, cell in enumerate(ordered):
        row, column = divmod(index, size.columns)
        x = 2 * size.inset + column * (width + size.gap)
        body.append(_cell(cell, x, y + 22 + row * (size.cell_height + size.gap), width, ident, size))
    return y + height + 8


def _cell(cell: Cell, x: float, y: float, width: float, ident: str, size: _Size) -> str:
    fill = f' fill="url(#{ident}-h)"' if cell.speed == "unknown" else ""
    who = cell.occupant
    parts = [
        f"<g><title>{escape(cell.text())}</title>"
        f'<rect class="cm-{cell.speed}"{fill} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{size.cell_height}" rx="4"/>'
        f'<text class="cm-soft" x="{x + width / 2:.1f}" y="{y + 12:.1f}" text-anchor="middle" font-size="10">{cell.cpu}</text>'
    ]
    if who and who.role == "rest":
        parts.append(_text(who.label, x + width / 2, y + size.cell_height - 9, 11, "cm-soft"))
    elif who:
        parts.append(_badge(who, x + 3, y + 15, width - 6, size.cell_height - 18, size.label))
    return "".join(parts) + "</g>"


def _badge(who: Occupant, x: float, y: float, width: float, height: float, font: int) -> str:
    label = one_line(who.label)[:6]
    # Bold capitals are about 0.75 em wide: a long label is set smaller, not cut.
    fitting = min(font, int((width - 4) / max(1, len(label)) / 0.8))
    return f'<rect class="cm-badge cm-{who.role}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height}" rx="3"/>' + _text(
        label, x + width / 2, y + height / 2 + fitting * 0.36, fitting, "cm-on"
    )


def _text(text: str, x: float, y: float, font: int, style: str) -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="middle" font-size="{font}"'
    return f"<text class={quoteattr(style)} {place}>{escape(one_line(text))}</text>"


def _legend(body: list[str], y: float, cells: Sequence[Cell], ident: str, size: _Size) -> float:
    """Only what the map holds is explained."""
    entries: list[tuple[str, str]] = []
    for speed, text in (("fast", "fast core"), ("slow", "slow core"), ("unknown", "speed not verified")):
        if any(cell.speed == speed for cell in cells):
            fill = f' fill="url(#{ident}-h)"' if speed == "unknown" else ""
            entries.append((f'<rect class="cm-{speed}"{fill} x="1" y="1" width="42" height="18" rx="4"/>', text))
    for role, label in LABELS.items():
        if any(cell.occupant and cell.occupant.role == role for cell in cells):
            shown = "TP0…" if role == "scheduler" else label
            mark = _text(label, 22, 14, 11, "cm-soft") if role == "rest" else _badge(Occupant(role, shown, ""), 0, 0, 44, 20, 11)
            entries.append((mark, MEANING[role]))
    x = float(size.inset)
    for mark, text in entries:
        needed = 52 + len(text) * size.label * 0.56 + 14
        if x > size.inset and x + needed > size.width:
            x, y = float(size.inset), y + 28
        body.append(f'<g transform="translate({x:.1f} {y:.1f})">{mark}<text x="51" y="15">{escape(text)}</text></g>')
        x += needed
    number = "The number in a cell is the core's lowest logical CPU."
    body.append(f'<text class="cm-soft" x="{size.inset}" y="{y + 42:.1f}" font-size="{size.label - 1}">{number}</text>')
    return y + 52


def _or_not_verified(value: int | None) -> str:
    return "not verified" if value is None else str(value)
