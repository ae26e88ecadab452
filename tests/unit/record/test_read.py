"""Reading records: a bad one never hides the others, and damage is named."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.record import read
from kit.record.model import RunState
from kit.record.store import Run


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    run = Run.create("plan", ["plan"], tmp_path)
    with run.host("alpha").stage("facts"):
        run.host("alpha").put("apply", {"a": 1})
    run.finish(0, [], {"alpha": 0})
    return run.path


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"id": 1}', b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_bad_run_does_not_hide_the_others(tmp_path: Path, finished: Path, content: bytes) -> None:
    bad = tmp_path / "20990101T000000Z-abcdef"
    bad.mkdir()
    (bad / "run.json").write_bytes(content)
    first, second = read.list_runs(tmp_path)
    assert first.state is RunState.UNREADABLE
    assert "run.json" in first.problem
    assert (second.id, second.state, second.exit_code) == (finished.name, RunState.FINISHED, 0)
    assert read.show(bad).problems


def test_an_absent_runs_folder_is_no_run(tmp_path: Path) -> None:
    assert read.list_runs(tmp_path / "none") == []


def test_a_bad_document_of_a_host_is_a_stated_problem(finished: Path) -> None:
    (finished / "hosts/alpha/facts.json").write_text('{"schema_version": 1}')
    (finished / "hosts/alpha/plan.json").write_text("{")
    (finished / "hosts/alpha/spec.yml").write_text("a: [")
    host = read.show(finished).hosts["alpha"]
    assert host.facts is host.plan is host.spec is None
    assert host.apply == {"a": 1}
    assert [p.split()[0] for p in host.problems] == ["spec.yml", "facts.json", "plan.json"]


def test_yaml_tags_in_a_record_do_nothing(finished: Path, tmp_path: Path) -> None:
    (finished / "hosts/alpha/spec.yml").write_text(f"!!python/object/apply:os.mkdir ['{tmp_path}/made']")
    assert read.show(finished).hosts["alpha"].spec is None
    assert not (tmp_path / "made").exists()


def _append(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n{}")


@pytest.mark.parametrize(
    ("damage", "kind"),
    [(_append, "changed"), (Path.unlink, "missing"), (lambda p: p.with_name("new.json").write_text("{}"), "extra")],
)
def test_damage_to_a_finished_run_is_named(finished: Path, damage: Callable[[Path], object], kind: str) -> None:
    assert read.verify(finished).ok
    damage(finished / "hosts/alpha/apply.json")
    verification = read.verify(finished)
    assert not verification.ok
    (finding,) = verification.findings
    assert finding.kind == kind
    assert finding.path == f"hosts/alpha/{'new' if kind == 'extra' else 'apply'}.json"


def test_an_edit_of_an_unfinished_run_is_not_taken_for_growth(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)
    with run.host("alpha").stage("facts"):
        run.host("alpha").event({"n": 1})
    events = run.path / "hosts/alpha/events.jsonl"
    run.host("alpha").event({"n": 2})
    assert [(f.kind, f.path) for f in read.verify(run.path).findings] == [("unsealed", "hosts/alpha/events.jsonl")]
    events.write_text('{"n": 7}\n{"n": 2}\n')
    assert [f.kind for f in read.verify(run.path).findings] == ["changed"]


@pytest.mark.parametrize(("content", "kind"), [(None, "missing"), ("nonsense\n", "unreadable")])
def test_absent_or_bad_sums_are_no_pass(finished: Path, content: str | None, kind: str) -> None:
    sums = finished / "SHA256SUMS"
    sums.unlink() if content is None else sums.write_text(content)
    verification = read.verify(finished)
    assert not verification.ok
    assert (verification.findings[0].path, verification.findings[0].kind) == ("SHA256SUMS", kind)


def test_a_secret_that_a_tool_left_in_the_folder_is_found(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)
    (run.path / "stdout").write_text("fine\n-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    run.finish(0)
    (finding,) = read.verify(run.path).findings
    assert (finding.path, finding.kind) == ("stdout", "secret")
    assert "line 2" in finding.detail
    assert not read.verify(run.path).ok


def test_a_run_is_found_by_id_part_and_latest(tmp_path: Path) -> None:
    runs = [Run.create("plan", [], tmp_path) for _ in range(3)]
    names = sorted(run.path.name for run in runs)
    assert read.find(tmp_path, names[0]).name == names[0]
    assert read.find(tmp_path, names[1][-6:]).name == names[1]
    assert read.find(tmp_path, "latest").name == names[2]


@pytest.mark.parametrize("name", ["", "..", "../..", "/etc", "nothing", "latest"])
def test_a_run_that_is_not_there_is_a_usage_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(KitError) as caught:
        read.find(tmp_path, name)
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.failures[0].code == "record.not_found"


def test_a_part_that_two_runs_have_is_ambiguous(tmp_path: Path) -> None:
    for _ in range(2):
        Run.create("plan", [], tmp_path)
    with pytest.raises(KitError) as caught:
        read.find(tmp_path, "T")
    assert caught.value.failures[0].code == "record.ambiguous"


def test_unknown_keys_of_a_later_version_are_read_over(finished: Path) -> None:
    document = json.loads((finished / "run.json").read_text())
    (finished / "run.json").write_text(json.dumps({**document, "later": 1}))
    assert read.show(finished).state is RunState.FINISHED
