"""What the outside suite's JUnit file comes to, from files that pytest itself wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kit.apply.hostcheck import Outside, judged
from kit.record.documents import outside_cases

SUITE = """
import pytest

@pytest.fixture
def broken():
    raise RuntimeError("no connection")

def test_good(): pass
def test_bad(): assert 1 == 2, "one is not two"
def test_error(broken): pass
def test_skipped(): pytest.skip("declared to be left alone")
"""


def suite(folder: Path, text: str) -> Outside:
    (folder / "test_it.py").write_text(text)
    junit = folder / "it.xml"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", "--rootdir", folder, folder]
    subprocess.run(words, capture_output=True, timeout=60, check=False)
    problems: list[str] = []
    cases = outside_cases(junit, problems)
    assert problems == []
    return judged(cases, "node: outside suite", folder / "outside.log")


def test_each_failure_is_told_and_what_was_skipped_is_not_passed(tmp_path: Path) -> None:
    found = suite(tmp_path, SUITE)
    assert found.summary() == {"passed": 1, "failed": 2, "skipped": 1}
    assert [(f.code, f.where) for f in found.failures] == [
        ("outside.test_bad", "node: outside suite"),
        ("outside.test_error", "node: outside suite"),
    ]
    assert "one is not two" in found.failures[0].found
    assert "no connection" in found.failures[1].found
    assert all(f.next for f in found.failures)
    assert found.skipped == ("test_skipped: declared to be left alone",)
    assert not found.ok


def test_only_skipped_is_not_ok(tmp_path: Path) -> None:
    assert suite(tmp_path, "def test_good(): pass\n").ok
    assert not suite(tmp_path, "import pytest\ndef test_skipped(): pytest.skip('x')\n").ok


def test_a_file_that_is_cut_off_is_a_problem_and_no_pass(tmp_path: Path) -> None:
    cut = tmp_path / "cut.xml"
    cut.write_text("<testsuites><testsuite><testcase name='a'/>")
    problems: list[str] = []
    assert outside_cases(cut, problems) == ()
    assert problems
