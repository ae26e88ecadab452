"""The B300 series against every stand-in shape, with SGLang's real ``find_spec`` asked afterwards."""

from pathlib import Path

import pytest
from plugin_standins import ALREADY, APPLIES, SHAPES, Shape, write

from kit.errors import ExitCode, KitError
from kit.patch.check import apply_series, patch_check
from kit.patch.engine import judge
from kit.patch.load import load_series
from kit.patch.post import Interpreter
from kit.patch.report import Held
from kit.patch.tree import Tree

FITTING = sorted(name for name, shape in SHAPES.items() if {shape.blocks, shape.features} <= {APPLIES, ALREADY})
UNFIT = sorted(set(SHAPES) - set(FITTING))


def states(report) -> dict[str, str]:
    return {patch.name: str(patch.state) for patch in report.patches}


def told(report) -> str:
    """Everything that a person is told."""
    parts = [f"{p.reason} {p.next}" for p in report.patches]
    parts += [f"{s.file}:{s.line} {s.found} {s.note}" for p in report.patches for s in p.sites]
    return "\n".join(parts)


def snapshot(folder: Path) -> dict[str, tuple[bytes, int]]:
    return {
        str(p.relative_to(folder)): (p.read_bytes(), p.stat().st_mtime_ns)
        for p in sorted(folder.rglob("*"))
        if p.is_file() and ".b300kit" not in p.parts
    }


@pytest.mark.parametrize("name", FITTING)
def test_a_shape_that_can_be_followed_is_patched_and_the_plugin_says_so(
    name: str, tmp_path: Path, series: Path, interpreter: Interpreter
) -> None:
    shape: Shape = SHAPES[name]
    source = write(shape, tmp_path / "source")
    before = snapshot(source)
    report = apply_series(source, series, tmp_path / "out" / "source", interpreter)
    assert states(report) == {"0001-resident-blocks-148": shape.blocks, "0002-kv-offload": shape.features}, told(report)
    assert {c.held for c in report.post_conditions} == {Held.HELD}, report.post_conditions
    after = snapshot(tmp_path / "out" / "source")
    assert snapshot(source) == before, "applying writes nothing into the source"
    assert {path for path in before if before[path][0] != after[path][0]} == set(shape.changed)
    assert set(after) == set(before)

    again, _ = judge(load_series(series), Tree(tmp_path / "out" / "source", load_series(series).declared.leave_out))
    assert {patch.state for patch in again} == {ALREADY}, again


@pytest.mark.parametrize("name", UNFIT)
def test_a_shape_that_cannot_be_told_is_never_guessed(name: str, tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    shape: Shape = SHAPES[name]
    source = write(shape, tmp_path / "source")
    before = snapshot(source)
    report = patch_check(source, series, interpreter)
    assert states(report) == {"0001-resident-blocks-148": shape.blocks, "0002-kv-offload": shape.features}, told(report)
    for words in shape.says:
        assert words in told(report)
    with pytest.raises(KitError) as caught:
        apply_series(source, series, tmp_path / "out" / "source", interpreter)
    assert caught.value.exit_code == ExitCode.APPLY_FAILED
    assert not (tmp_path / "out" / "source").exists()
    assert snapshot(source) == before


def test_every_site_names_a_real_line(tmp_path: Path, series: Path) -> None:
    declared = load_series(series)
    for name, shape in SHAPES.items():
        source = write(shape, tmp_path / name)
        for patch in judge(declared, Tree(source, declared.declared.leave_out))[0]:
            for site in patch.sites:
                lines = (source / site.file).read_text(encoding="utf-8-sig").splitlines()
                assert 1 <= site.line <= len(lines), (name, site)
                assert site.found == lines[site.line - 1].strip()[:160], (name, site)
