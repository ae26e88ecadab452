"""Checking and applying a series: all or nothing, by bytes and not by labels, and what is told when it cannot be done."""

import json
import os
import shutil
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest
from plugin_standins import SHAPES, big, spec, write

from kit.errors import ExitCode, KitError
from kit.patch import check as checking
from kit.patch.check import RECEIPT, apply_series, patch_check, receipt_sha256
from kit.patch.flow import check
from kit.patch.load import find_series, load_series
from kit.patch.post import Interpreter
from kit.patch.report import Held
from kit.patch.tree import Tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write(SHAPES["header_consistent"], tmp_path / "source")


def copy_series(series: Path, target: Path) -> Path:
    shutil.copytree(series, target / "sgl-nvidia-mega" / "v")
    return target / "sgl-nvidia-mega" / "v"


def codes(error: KitError) -> set[str]:
    return {f.code for f in error.failures}


def test_the_outcome_is_the_contract_of_patch_check(source: Path, series: Path, interpreter: Interpreter) -> None:
    outcome = check(source, series, interpreter)
    assert outcome.exit_code == ExitCode.OK and outcome.failures == () and outcome.skipped == ()
    document = json.loads(json.dumps(outcome.result))
    assert [p["name"] for p in document["patches"]] == ["0001-resident-blocks-148", "0002-kv-offload"]
    for patch in document["patches"]:
        assert patch["state"] == "applies" and patch["reason"]
        assert {"file", "line", "found"} <= set(patch["sites"][0])
    assert document["proven"] is True
    assert "0001-resident-blocks-148  applies" in outcome.text and "The series fits" in outcome.text


def test_a_person_must_look_is_five_with_place_and_next(tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    outcome = check(write(SHAPES["shared_meaning"], tmp_path / "s"), series, interpreter)
    assert outcome.exit_code == ExitCode.GATE_FAILED == 5
    (one,) = outcome.failures
    assert one.code == "patch.ambiguous" and "mega/spec.py:" in one.where and one.next
    assert outcome.result["patches"][1]["state"] == "applies"


@pytest.mark.parametrize("path", ["absent", "file"])
def test_a_bad_path_is_two(path: str, tmp_path: Path, series: Path) -> None:
    (tmp_path / "file").write_text("x")
    outcome = check(tmp_path / path, series)
    assert outcome.exit_code == ExitCode.USAGE == 2
    assert outcome.failures[0].code == "patch.source" and outcome.failures[0].next


def test_an_unknown_series_is_two_and_the_only_one_needs_no_name(tmp_path: Path, source: Path) -> None:
    assert check(source, "nothing/of-the-kind").exit_code == ExitCode.USAGE
    assert find_series(Path("patches").resolve(), None).name == "sglang-pin-2026-10-28"


def test_modules_that_are_absent_here_are_named_and_a_build_does_not_accept_them(
    tmp_path: Path, series: Path, interpreter: Interpreter
) -> None:
    source = write(SHAPES["needs_torch"], tmp_path / "s")
    report = patch_check(source, series, interpreter)
    assert report.proven and all(
        c.reason.endswith("(absent here and stood in for: sglang.srt, sglang.srt.environ, torch)") for c in report.post_conditions
    )
    strict = Interpreter(contract=interpreter.contract, stand_ins=False)
    with pytest.raises(KitError) as caught:
        apply_series(source, series, tmp_path / "out", strict)
    assert codes(caught.value) == {"patch.conflict"} and not (tmp_path / "out").exists()


def test_a_failure_behind_stand_ins_says_nothing_about_the_plugin(tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    shape = {**SHAPES["literal"].tree(), "mega/spec.py": spec(head="import torch\nassert torch.cuda.device_count() > 3\n")}
    source = write(shape, tmp_path / "s")
    report = patch_check(source, series, interpreter)
    assert report.fits and not report.proven
    assert {c.held for c in report.post_conditions} == {Held.SKIPPED}
    outcome = check(source, series, interpreter)
    assert outcome.exit_code == ExitCode.OK and len(outcome.skipped) == 2 and "not looked at here" in outcome.text
    with pytest.raises(KitError) as caught:
        apply_series(source, series, tmp_path / "out", interpreter)
    assert codes(caught.value) == {"patch.not_proven"}


def test_without_the_contract_nothing_is_called_proven(
    source: Path, series: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checking, "contract_dir", lambda *_: None)
    report = patch_check(source, series)
    assert report.fits and not report.proven and {c.held for c in report.post_conditions} == {Held.SKIPPED}
    with pytest.raises(KitError):
        apply_series(source, series, tmp_path / "out")


def test_a_plugin_that_hangs_at_import_is_ended(tmp_path: Path, series: Path, contract: Path) -> None:
    marker = tmp_path / "child"
    head = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(marker)!r}, 'w').write(str(p.pid))\n"
        "time.sleep(60)\n"
    )
    source = write({**SHAPES["literal"].tree(), "mega/spec.py": spec(head=head)}, tmp_path / "s")
    start = time.monotonic()
    report = patch_check(source, series, Interpreter(contract=contract, timeout_s=2.0))
    assert time.monotonic() - start < 15
    assert not report.fits and "took longer than 2 s" in report.patches[0].reason
    child = int(marker.read_text())
    for _ in range(100):
        if not Path(f"/proc/{child}").exists() or Path(f"/proc/{child}/stat").read_text().split()[2] == "Z":
            return
        time.sleep(0.05)
    pytest.fail("the plugin's child outlived the check")


def test_a_plugin_that_ends_the_interpreter_is_a_finding(tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    source = write({**SHAPES["literal"].tree(), "mega/spec.py": spec(head="os._exit(0)\n")}, tmp_path / "s")
    report = patch_check(source, series, interpreter)
    assert not report.fits and "ended with status 0" in report.patches[0].reason


def test_what_the_plugin_prints_is_no_answer(tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    source = write({**SHAPES["literal"].tree(), "mega/spec.py": spec(head="print('{}')\n")}, tmp_path / "s")
    assert patch_check(source, series, interpreter).proven


# Applying.


def test_the_receipt_proves_what_was_touched(source: Path, series: Path, interpreter: Interpreter, tmp_path: Path) -> None:
    out = tmp_path / "out"
    apply_series(source, series, out, interpreter)
    receipt = json.loads((out / RECEIPT).read_text())
    assert set(receipt["changed"]) == {"csrc/mega.cuh", "mega/spec.py"}
    before = Tree(source).hashes(with_edits=False)
    after = Tree(out).hashes(with_edits=False)
    for path, hashes in receipt["changed"].items():
        assert (hashes["before"], hashes["after"]) == (before[path], after[path])
    kernels = [path for path in before if path.endswith(".cu")]
    assert kernels and all(before[path] == after[path] for path in kernels)
    assert receipt["untouched"]["files"] == len(before) - 2
    assert (out / "csrc/mega.cuh").read_text() == (
        "#pragma once\n// 152 SMs\nconstexpr int kResidentBlocks = 148;\n#define MEGA_RESIDENT_BLOCKS 148\n"
    )
    text = (out / RECEIPT).read_text()
    assert str(tmp_path) not in text, "a receipt holds no path of this machine"
    apply_series(source, series, tmp_path / "again", interpreter)
    assert receipt_sha256(out) == receipt_sha256(tmp_path / "again"), "the same input gives the same receipt"


def test_modes_and_links_survive(source: Path, series: Path, interpreter: Interpreter, tmp_path: Path) -> None:
    (source / "mega/spec.py").chmod(0o640)
    (source / "mega/latest.py").symlink_to("spec.py")
    out = tmp_path / "out"
    apply_series(source, series, out, interpreter)
    assert stat.S_IMODE((out / "mega/spec.py").stat().st_mode) == 0o640
    assert (out / "mega/latest.py").readlink() == Path("spec.py")


def test_a_second_apply_says_already_and_writes_nothing(
    source: Path, series: Path, interpreter: Interpreter, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    apply_series(source, series, out, interpreter)
    stamps = {p: p.stat().st_mtime_ns for p in out.rglob("*")}
    again = apply_series(source, series, out, interpreter)
    assert {str(p.state) for p in again.patches} == {"already"}
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*")} == stamps


def test_another_tree_at_the_destination_is_never_overwritten(
    source: Path, series: Path, interpreter: Interpreter, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    apply_series(source, series, out, interpreter)
    (out / "csrc/step.cu").write_text("// somebody's work\n")
    with pytest.raises(KitError) as caught:
        apply_series(source, series, out, interpreter)
    assert codes(caught.value) == {"patch.destination"} and caught.value.exit_code == ExitCode.USAGE
    assert (out / "csrc/step.cu").read_text() == "// somebody's work\n"


def test_the_source_is_no_destination(source: Path, series: Path, interpreter: Interpreter) -> None:
    with pytest.raises(KitError) as caught:
        apply_series(source, series, source, interpreter)
    assert codes(caught.value) == {"patch.destination"}


def test_one_patch_that_does_not_fit_keeps_all_from_being_written(tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    source = write(SHAPES["features_loop"], tmp_path / "s")
    with pytest.raises(KitError) as caught:
        apply_series(source, series, tmp_path / "out", interpreter)
    assert caught.value.exit_code == ExitCode.APPLY_FAILED and codes(caught.value) == {"patch.ambiguous"}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["s"], "no half-written folder is left"


def test_killed_while_writing_leaves_nothing_at_the_destination(source: Path, series: Path, tmp_path: Path) -> None:
    """The process dies just before the rename; the next run is not disturbed by what it left."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom kit.patch import check\n"
        "check._sync = lambda folder: os._exit(9)\n"
        "check.apply_series(*map(Path, sys.argv[1:4]), proven=False)\n"
    )
    out = tmp_path / "deep" / "out"
    done = subprocess.run([sys.executable, "-c", program, source, series, out], cwd=Path.cwd(), check=False)
    assert done.returncode == 9 and not out.exists()
    apply_series(source, series, out, proven=False)
    assert (out / RECEIPT).exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to mount a small file system")
def test_a_full_disk_leaves_nothing(source: Path, series: Path, interpreter: Interpreter, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=False).returncode != 0:
        pytest.skip("mounting is not allowed here")
    try:
        (source / "csrc/blob.bin").write_bytes(b"x" * 200_000)
        with pytest.raises(KitError) as caught:
            apply_series(source, series, small / "out", interpreter)
        assert codes(caught.value) == {"patch.write"} and caught.value.failures[0].found == "No space left on device"
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_a_route_takes_its_own_patches(source: Path, series: Path, interpreter: Interpreter, tmp_path: Path) -> None:
    report = apply_series(source, series, tmp_path / "out", interpreter, route="upstream")
    assert [p.name for p in report.patches] == ["0002-kv-offload"] and report.proven
    receipt = json.loads((tmp_path / "out" / RECEIPT).read_text())
    assert receipt["route"] == "upstream" and set(receipt["changed"]) == {"mega/spec.py"}
    assert receipt["series_sha256"] == load_series(series).sha256, "one lock for both routes"
    with pytest.raises(KitError) as caught:
        patch_check(source, series, interpreter, route="downstream")
    assert codes(caught.value) == {"patch.route"} and caught.value.exit_code == ExitCode.USAGE


# A series that was tampered with, or is not written right.


def test_a_tampered_series_is_refused_by_its_locked_hash(
    source: Path, series: Path, interpreter: Interpreter, tmp_path: Path
) -> None:
    locked = load_series(series).sha256
    copied = copy_series(series, tmp_path / "p")
    assert load_series(copied, locked).sha256 == locked
    patch = copied / "0001-resident-blocks-148.yml"
    patch.write_text(patch.read_text().replace("new: 148", "new: 149"))
    with pytest.raises(KitError) as caught:
        apply_series(source, copied, tmp_path / "out", interpreter, expected_sha256=locked)
    assert codes(caught.value) == {"patch.series_hash"} and not (tmp_path / "out").exists()


def test_slots_are_part_of_the_locked_hash(series: Path, tmp_path: Path) -> None:
    copied = copy_series(series, tmp_path / "p")
    slots = copied / "slots.yml"
    slots.write_text(slots.read_text().replace("39", "38"))
    assert load_series(copied).sha256 != load_series(series).sha256


BAD = {
    "no_header": (lambda s: s.replace("Remove-When:", "X-Remove:"), {"spec.unknown_key"}),
    "bad_number": (lambda s: s.replace("old: 152", "old: many", 1), {"spec.wrong_type"}),
    "duplicate_key": (lambda s: s + "\nDescription: again\n", {"yaml.duplicate_key"}),
    "alias": (lambda s: s.replace("old: 152", "old: &x 152", 1), {"yaml.alias"}),
    "unknown_kind": (lambda s: s.replace("python-argument", "fuzzy-diff"), {"spec.wrong_type"}),
    "other_project": (lambda s: s.replace("project: sgl-nvidia-mega", "project: another"), {"patch.project"}),
}


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_patch_that_is_not_written_right_is_told_with_its_line(name: str, series: Path, tmp_path: Path) -> None:
    change, expected = BAD[name]
    copied = copy_series(series, tmp_path / "p")
    patch = copied / "0001-resident-blocks-148.yml"
    patch.write_text(change(patch.read_text()))
    with pytest.raises(KitError) as caught:
        load_series(copied)
    assert caught.value.exit_code == ExitCode.USAGE and codes(caught.value) == expected
    assert all("0001-resident-blocks-148.yml" in f.where and f.next for f in caught.value.failures)


def test_a_patch_is_never_left_out_silently(series: Path, tmp_path: Path) -> None:
    copied = copy_series(series, tmp_path / "p")
    (copied / "0003-more.yml").write_text("x: 1\n")
    (copied / "0002-kv-offload.yml").unlink()
    with pytest.raises(KitError) as caught:
        load_series(copied)
    assert codes(caught.value) == {"patch.unlisted", "patch.missing"}


def test_a_big_tree_is_judged_alike(tmp_path: Path, series: Path, interpreter: Interpreter) -> None:
    source = write(big(120), tmp_path / "big")
    report = patch_check(source, series, interpreter)
    assert report.proven and {str(p.state) for p in report.patches} == {"applies"}
