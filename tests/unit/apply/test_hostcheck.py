"""What the outside suite's JUnit file comes to, from files that pytest itself wrote."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from kit.apply.hostcheck import Outside, judged
from kit.paths import ROOT
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
PROMISES = """
import pytest
from tests.host.promise import same, words

@pytest.fixture
def seats():
    same("who sits where", "decided", "not decided")

class Host:
    def run(self, *words):
        class Done:
            rc, stdout, stderr = 1, "", "Error: No such file\\nlist table\\n  ^^^\\n"
        return Done

def test_power(): same("power limit of GPU 3", "1100 W", "900 W")
def test_seats(seats): pass
def test_command(): words(Host(), "nft", "list")
def test_object(): assert Host() is None
"""


def suite(folder: Path, text: str) -> Outside:
    (folder / "test_it.py").write_text(text)
    junit = folder / "it.xml"
    (folder / "conftest.py").write_text("from tests.host.conftest import pytest_runtest_makereport\n")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={junit}", "--rootdir", folder, folder]
    subprocess.run(words, capture_output=True, timeout=60, check=False, cwd=ROOT)
    problems: list[str] = []
    cases = outside_cases(junit, problems)
    assert problems == []
    return judged(cases, "node: seen from outside", folder / "outside.log")


def test_each_failure_is_told_and_what_was_skipped_is_not_passed(tmp_path: Path) -> None:
    found = suite(tmp_path, SUITE)
    assert found.summary() == {"passed": 1, "failed": 2, "skipped": 1}
    assert [(f.code, f.where) for f in found.failures] == [
        ("outside.test_bad", "node: seen from outside"),
        ("outside.test_error", "node: seen from outside"),
    ]
    assert "one is not two" in found.failures[0].found
    assert "no connection" in found.failures[1].found
    assert all(f.next for f in found.failures)
    assert found.skipped == ("test_skipped: declared to be left alone",)
    assert not found.ok


def test_only_skipped_is_not_ok(tmp_path: Path) -> None:
    assert suite(tmp_path, "def test_good(): pass\n").ok
    nothing = suite(tmp_path, "import pytest\ndef test_skipped(): pytest.skip('x')\n")
    assert not nothing.ok
    assert [f.code for f in nothing.failures] == ["outside.nothing"]


def test_a_promise_that_is_not_kept_is_told_by_its_values_and_not_in_pythons_words(tmp_path: Path) -> None:
    found = suite(tmp_path, PROMISES)
    assert [(f.where.removeprefix("node: seen from outside"), f.expected, f.found) for f in found.failures] == [
        (": power limit of GPU 3", "1100 W", "900 W"),
        (": who sits where", "decided", "not decided"),
        (": `nft list`", "exit 0", "exit 1: Error: No such file"),
        ("", "as planned", "assert Host is None"),
    ]
    assert found.cases[0].message == "power limit of GPU 3: expected 1100 W, found 900 W"


def test_a_file_that_is_cut_off_is_a_problem_and_no_pass(tmp_path: Path) -> None:
    cut = tmp_path / "cut.xml"
    cut.write_text("<testsuites><testsuite><testcase name='a'/>")
    problems: list[str] = []
    assert outside_cases(cut, problems) == ()
    assert problems
