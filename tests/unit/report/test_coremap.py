"""The core map: well-formed, complete, legible, and honest about what is not known."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest

from kit.facts.model import Cpu
from kit.report import seats
from kit.report.coremap import NARROW, WIDE, Cell, Occupant, core_map_svg, summary

from . import sample

SVG = "{http://www.w3.org/2000/svg}"


def cpu(**changes: object) -> Cpu:
    return Cpu.model_validate({**sample.facts_document()["cpu"], **changes})


def parsed(cells: tuple[Cell, ...], size: object = WIDE) -> ElementTree.Element:
    return ElementTree.fromstring(core_map_svg(cells, "Core map of b300-01", "x", size))  # type: ignore[arg-type]


def texts(root: ElementTree.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def whole() -> tuple[Cell, ...]:
    return seats.cells(cpu(), sample.decision(), sample.assignment())


def test_each_physical_core_is_drawn_once_with_its_number_and_hover_text() -> None:
    root = parsed(whole())
    hovers = [t.text or "" for g in root.iter(f"{SVG}g") for t in g.findall(f"{SVG}title")]
    assert len(hovers) == 128
    assert {int(t) for t in texts(root) if t.isdigit()} == set(range(128))
    assert any(
        h.startswith("Core with CPU 1, 129: scheduler 0; fast (measured 4598 MHz alone, 4588 MHz under load)") for h in hovers
    )


def test_everybody_of_the_assignment_is_on_the_map_and_on_the_right_core() -> None:
    assignment = sample.assignment()
    by_cpu = {cell.cpu: cell for cell in whole()}
    for seat in seats.seated(assignment):
        who = by_cpu[seat.core].occupant
        assert who is not None
        assert who.text == seat.name
        assert (by_cpu[seat.core].speed == "fast") is seat.fast
    labels = texts(parsed(whole()))
    assert {f"TP{n}" for n in range(4)} <= set(labels)
    assert {"DETOK", "TOK", "OS", "rest"} <= set(labels)
    assert sum(cell.occupant is not None and cell.occupant.role == "os" for cell in by_cpu.values()) == 2


def test_fast_cores_are_those_of_the_decision() -> None:
    assert {cell.cpu for cell in whole() if cell.speed == "fast"} == set(sample.FAST)


@pytest.mark.parametrize("size", [WIDE, NARROW])
def test_cells_do_not_overlap_and_labels_fit(size: object) -> None:
    root = parsed(whole(), size)
    width = float(root.attrib["viewBox"].split()[2])
    cells = [g for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None]
    boxes = []
    for group in cells:
        rects = group.findall(f"{SVG}rect")
        x, y, w, h = (float(rects[0].attrib[k]) for k in ("x", "y", "width", "height"))
        boxes.append((x, y, x + w, y + h))
        assert w >= 42
        assert x >= 0
        assert x + w <= width
        for text in group.findall(f"{SVG}text"):
            font = float(text.attrib["font-size"])
            assert font >= 9
            assert len(text.text or "") * font * 0.76 <= w, text.text
    boxes.sort()
    for i, a in enumerate(boxes):
        assert not any(a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3] for b in boxes[i + 1 :])


def test_packages_and_nodes_are_blocks_in_order() -> None:
    found = [t for t in texts(parsed(whole())) if t.startswith(("Package", "NUMA"))]
    assert sorted(t for t in found if t.startswith("NUMA")) == [f"NUMA node {n}" for n in range(4)]
    assert [t for t in found if t.startswith("Package")] == ["Package 0", "Package 1"]


def test_a_refused_decision_hatches_every_core_and_says_why() -> None:
    refused = sample.decision().model_copy(update={"fast_cores": (), "refused": "the spread is ambiguous"})
    cells = seats.cells(cpu(), refused, None)
    assert {cell.speed for cell in cells} == {"unknown"}
    assert parsed(cells).find(f".//{SVG}rect[@fill='url(#x-h)']") is not None
    assert "speed not verified" in texts(parsed(cells))
    assert "the spread is ambiguous" in seats.reasons(refused, None)[0]
    assert "128 of unverified speed" in summary(cells)


def test_unknown_topology_is_drawn_as_not_verified_not_as_zero() -> None:
    why = sample.unknown("sysfs is hidden here")
    logical = [{**sample.logical(n), "package": why, "node": why, "core": why, "siblings": why, "max_khz": why} for n in range(4)]
    cells = seats.cells(cpu(logical=logical, measured=why), None, None)
    assert [(cell.package, cell.node, cell.cpus) for cell in cells] == [(None, None, (n,)) for n in range(4)]
    assert "Package not verified" in texts(parsed(cells))
    assert "its frequency is not verified: sysfs is hidden here" in cells[0].text()


def test_a_frequency_that_is_only_claimed_is_not_called_measured() -> None:
    cells = seats.cells(cpu(measured=sample.unknown("not asked")), sample.decision(), None)
    assert cells[1].detail == "claims 4600 MHz, not measured"


def test_no_core_at_all_is_said() -> None:
    assert "No core was read on this host." in texts(parsed(()))


def test_hostile_text_is_escaped() -> None:
    bad = '</text><script>alert("1")</script>\x1b'
    cells = (Cell(0, (0,), 0, 0, "fast", bad, Occupant("scheduler", "<b>&", bad)),)
    svg = core_map_svg(cells, bad, "x")
    assert "<script" not in svg
    assert "\x1b" not in svg
    assert ElementTree.fromstring(svg) is not None


def test_the_drawing_asks_for_nothing_from_outside() -> None:
    svg = core_map_svg(whole(), "t", "x")
    assert set(re.findall(r"https?://[^\"' )]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert set(re.findall(r"url\(([^)]*)\)", svg)) <= {"#x-h"}
    assert "<style>" in svg
    assert "<style>" not in core_map_svg(whole(), "t", "x", styled=False)
