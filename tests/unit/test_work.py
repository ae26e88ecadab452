"""What several findings about one host come to."""

from __future__ import annotations

from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.spec.model import FleetFile
from kit.spec.target import Target
from kit.work import Work, each
from tests.unit.plan import world


def work() -> Work:
    return Work(Target(world.declared(), world.LOCK, FleetFile(schema_version=1), Path("seed-b300.yml")))


def test_a_gate_that_failed_outranks_what_is_only_to_change() -> None:
    one = work()
    one.codes.add(ExitCode.CHANGE_PENDING)
    one.codes.add(ExitCode.GATE_FAILED)
    assert one.exit_code == ExitCode.GATE_FAILED


def test_an_error_ends_its_host_alone_and_keeps_what_was_found_before() -> None:
    bad, good = work(), work()

    def do(one: Work) -> None:
        if one is bad:
            one.codes.add(ExitCode.CHANGE_PENDING)
            raise KitError([failure("a", "here"), failure("b", "here")], ExitCode.UNREACHABLE)

    each([bad, good], 2, do)
    assert (bad.exit_code, [f.code for f in bad.failures]) == (ExitCode.UNREACHABLE, ["a", "b"])
    assert (good.exit_code, good.failures) == (ExitCode.OK, [])
