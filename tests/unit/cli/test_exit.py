"""One exit status from many."""

from __future__ import annotations

import pytest

from kit.cli.exit import of_findings, of_hosts, of_outcome
from kit.errors import ExitCode


@pytest.mark.parametrize(
    ("codes", "expected"),
    [
        ([], 0),
        ([0], 0),
        ([0, 0], 0),
        ([3, 3], 3),
        ([4, 4, 4], 4),
        ([0, 3], 8),
        ([3, 4], 8),
        ([0, 0, 7], 8),
        ([0, 130], 130),
        ([8, 8], 8),
    ],
)
def test_hosts_with_one_end_share_it_and_others_are_mixed(codes: list[int], expected: int) -> None:
    assert of_hosts(codes) == expected


@pytest.mark.parametrize(
    ("codes", "expected"),
    [([], 0), ([0, 3], 3), ([3, 4], 4), ([10, 5], 5), ([5, 4], 4), ([10, 3], 10), ([11, 3], 11), ([143, 4], 143), ([99], 1)],
)
def test_of_one_hosts_findings_the_worst_counts(codes: list[int], expected: int) -> None:
    assert of_findings(codes) == expected


def test_every_code_but_mixed_has_a_place_in_the_precedence() -> None:
    for code in ExitCode:
        if code is not ExitCode.MIXED:
            assert of_findings([code]) == code


def test_the_whole_runs_code_comes_first() -> None:
    assert of_outcome(1, [0, 3]) == 1
    assert of_outcome(0, [3]) == 3
