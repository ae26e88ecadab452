"""Writing records: complete or absent, summed, never rewritten."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError, failure
from kit.outcome import HostOutcome
from kit.plan.model import Action, ManagedFile, Plan, Step
from kit.record import files, read
from kit.record.model import RunState
from kit.record.store import Run

PLAN = Plan(
    host="alpha",
    boot_id="b",
    steps=(Step(id="cpu.governor", action=Action.CHANGE, reason="why", file=ManagedFile(path="/etc/b300kit/a", content="x\n")),),
)


def sha256sum(folder: Path) -> subprocess.CompletedProcess[str]:
    """The check that an operator without this kit would run."""
    return subprocess.run(["sha256sum", "--strict", "-c", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)


def test_a_finished_run_reads_back_and_its_sums_hold(tmp_path: Path) -> None:
    run = Run.create("provision", ["invoke", "provision", "--host", "alpha"], tmp_path)
    with run.host("alpha").stage("plan"):
        run.host("alpha").put("plan", PLAN)
    run.finish(ExitCode.REFUSED, [failure("plan.x", "alpha: x", 1, 2, "look")], {"alpha": 4})
    record = read.show(run.path)
    assert record.state is RunState.FINISHED
    assert record.document is not None
    assert record.document.exit_code == 4
    assert record.document.failures[0].next == "look"
    assert record.hosts["alpha"].plan == PLAN
    assert [(s.name, s.outcome) for s in record.hosts["alpha"].stages] == [("plan", "ok")]
    assert record.problems == record.hosts["alpha"].problems == ()
    done = sha256sum(run.path)
    assert done.returncode == 0, done.stderr
    assert "hosts/alpha/plan.json: OK" in done.stdout
    assert "run.json: OK" in done.stdout
    assert read.verify(run.path).ok
    assert (tmp_path / "latest").resolve() == run.path


def test_a_second_run_changes_nothing_of_the_first(tmp_path: Path) -> None:
    first = Run.create("plan", [], tmp_path)
    first.finish(0)
    before = {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in first.path.rglob("*") if p.is_file()}
    second = Run.create("plan", [], tmp_path)
    second.finish(0)
    assert {p: (p.read_bytes(), p.stat().st_mtime_ns) for p in first.path.rglob("*") if p.is_file()} == before
    assert (tmp_path / "latest").resolve() == second.path


def test_a_document_put_twice_is_kept_twice_and_the_last_one_counts(tmp_path: Path) -> None:
    host = Run.create("plan", [], tmp_path).host("alpha")
    paths = [host.put("apply", {"n": n}) for n in range(11)]
    assert [p.name for p in paths[:3]] == ["apply.json", "apply-2.json", "apply-3.json"]
    assert json.loads(paths[0].read_text()) == {"n": 0}
    assert read.show(host.path.parent.parent).hosts["alpha"].apply == {"n": 10}


def test_spec_is_yaml_and_text_and_bytes_are_kept_as_they_are(tmp_path: Path) -> None:
    host = Run.create("plan", [], tmp_path).host("alpha")
    assert host.put("spec", {"a": ["b"]}).read_text() == "a:\n- b\n"
    assert host.put("raw", "text").name == "raw.txt"
    assert host.put("raw", b"\x00\xff", ".bin").read_bytes() == b"\x00\xff"


@pytest.mark.parametrize("name", ["../x", "", "A", "a/b", "a\n", ".hidden", "a" * 64])
def test_a_host_name_cannot_leave_the_record(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="not a host name"):
        Run.create("plan", [], tmp_path).host(name)


def test_a_stage_keeps_its_failures_and_its_exception(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)
    with pytest.raises(KitError), run.host("alpha").stage("facts"):
        raise KitError(failure("ssh.unreachable", "alpha", next="look at the cable"), ExitCode.UNREACHABLE)
    with pytest.raises(RuntimeError), run.host("alpha").stage("plan"):
        raise RuntimeError("token=hf_" + "a" * 34)
    stages = read.show(run.path).hosts["alpha"].stages
    assert [(s.name, s.outcome, s.failures[0].code) for s in stages] == [
        ("facts", "failed", "ssh.unreachable"),
        ("plan", "failed", "internal"),
    ]
    assert "hf_a" not in (run.path / "hosts/alpha/stages.jsonl").read_text()


@pytest.mark.parametrize(
    ("error", "code"),
    [(KitError(failure("a.b", "c"), ExitCode.LOCKED), 12), (KeyboardInterrupt(), 130), (RuntimeError("x"), 1)],
)
def test_as_a_context_manager_a_run_ends_with_what_happened(tmp_path: Path, error: BaseException, code: int) -> None:
    with pytest.raises(type(error)), Run.create("plan", [], tmp_path) as run:
        raise error
    document = read.show(run.path).document
    assert document is not None
    assert (document.exit_code, len(document.failures)) == (code, 1)


def test_an_end_that_cannot_be_written_hides_no_failure(tmp_path: Path) -> None:
    with pytest.raises(KitError) as caught, Run.create("plan", [], tmp_path) as run:
        shutil.rmtree(run.path)
        raise KitError(failure("ssh.auth", "alpha"), ExitCode.UNREACHABLE)
    assert [f.code for f in caught.value.failures] == ["ssh.auth", "record.write"]
    assert caught.value.exit_code is ExitCode.UNREACHABLE


def test_a_host_outcome_is_kept_with_its_failures(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)
    run.host("alpha")
    run.finish(7, [], {"alpha": HostOutcome(7, failures=(failure("ssh.auth", "alpha"),))})
    end = read.show(run.path).hosts["alpha"].end
    assert end is not None
    assert (end.exit_code, end.failures[0].code) == (7, "ssh.auth")


def test_nan_is_refused(tmp_path: Path) -> None:
    room = Run.create("plan", [], tmp_path)
    with pytest.raises(ValueError, match="not JSON compliant"):
        room.put("apply", {"x": float("nan")})
    with pytest.raises(ValueError, match="not JSON compliant"):
        room.event({"x": float("inf")})


def test_many_threads_leave_sums_that_hold(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)

    def work(name: str) -> None:
        for number in range(5):
            with run.host(name).stage(f"s{number}"):
                run.host(name).put(f"s{number}", {"n": number})
                run.host(name).event({"n": number})

    threads = [threading.Thread(target=work, args=(f"h{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    run.finish(0)
    assert sha256sum(run.path).returncode == 0
    verification = read.verify(run.path)
    assert verification.ok
    assert verification.checked == 1 + 8 * (5 + 2)


def test_a_killed_run_is_readable_and_says_interrupted(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path; from kit.record.store import Run\n"
        "run = Run.create('provision', [], Path(sys.argv[1])); host = run.host('alpha')\n"
        "def event(n): host.event({'host': 'alpha', 'role': 'cpu', 'task': 't', 'status': 'ok', 'seconds': n})\n"
        "with host.stage('facts'): host.put('apply', {'a': 1}); event(1)\n"
        "cm = host.stage('apply'); cm.__enter__(); event(2); host.put('plan', {'b': 2})\n"
        "(host.path / '.partial-plan.json-abc').write_text('{')\n"
        "with (host.path / 'events.jsonl').open('a') as f: f.write('{\"cut')\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    (summary,) = read.list_runs(tmp_path)
    assert summary.state is RunState.INTERRUPTED
    assert summary.exit_code is None
    record = read.show(summary.path)
    host = record.hosts["alpha"]
    assert [(s.name, s.outcome) for s in host.stages] == [("facts", "ok"), ("apply", "unfinished")]
    assert [e.seconds for e in host.events] == [1, 2]
    assert any("events.jsonl line 3 cannot be read" in problem for problem in host.problems)
    verification = read.verify(summary.path)
    assert verification.ok, verification.findings
    assert {(f.path.rpartition("/")[2], f.kind) for f in verification.findings} == {
        ("events.jsonl", "unsealed"),
        ("stages.jsonl", "unsealed"),
        ("plan.json", "unsealed"),
        (".partial-plan.json-abc", "partial"),
    }


def test_a_run_of_a_living_process_is_running_and_of_a_reused_pid_is_not(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)
    assert read.list_runs(tmp_path)[0].state is RunState.RUNNING
    document = json.loads((run.path / "run.json").read_text())
    for key, value in (("pid_started", document["pid_started"] - 1), ("boot_id", "another"), ("boot_id", "")):
        (run.path / "run.json").write_text(json.dumps({**document, key: value}))
        assert read.list_runs(tmp_path)[0].state is RunState.INTERRUPTED


_FULL_DISK = """
import os, sys
from pathlib import Path
from kit.errors import KitError
from kit.record.store import Run
room = Run.create('plan', [], Path(sys.argv[1])).host('alpha')
room.event({'n': 1})
try:
    room.put('facts', {'text': 'word ' * 100_000})
except KitError as error:
    f = error.failures[0]
    print(error.exit_code.value, f.code, f.where, f.found, '| next:', f.next)
try:
    while True:
        room.event({'text': 'word ' * 1000})
except KitError as error:
    print(error.exit_code.value, error.failures[0].code)
lines = (room.path / 'events.jsonl').read_bytes()
print('whole lines:', lines.endswith(b'}\\n'), 'left:', sorted(os.listdir(room.path)))
"""


def test_a_full_disk_says_so_and_leaves_no_partial_file(tmp_path: Path) -> None:
    """A real one: a tmpfs of 256 KiB in a mount namespace of its own."""
    inside = 'mount -t tmpfs -o size=256k none "$1" && exec "$2" -c "$3" "$1"'
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    command = ["unshare", *user, "--mount", "sh", "-c", inside, "sh", str(tmp_path), sys.executable, _FULL_DISK]
    done = subprocess.run(command, capture_output=True, text=True)
    if "unshare failed" in done.stderr or "permission denied" in done.stderr.lower():
        pytest.skip(f"no mount namespace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    first, second, third = done.stdout.splitlines()
    assert first.startswith("1 record.write ")
    assert "No space left on device" in first
    assert "KiB" in first
    assert "free at" in first
    assert "B300KIT_RUNS" in first
    assert second == "1 record.write"
    assert third == "whole lines: True left: ['events.jsonl']"


def test_a_runs_folder_that_cannot_be_made_is_a_record_failure(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(KitError) as caught:
        Run.create("plan", [], tmp_path / "file" / "runs")
    assert caught.value.exit_code is ExitCode.INTERNAL
    assert caught.value.failures[0].code == "record.write"


def test_an_atomic_write_that_fails_leaves_the_old_content(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    (target / "old").write_text("old")
    with pytest.raises(KitError) as caught:
        files.write_atomic(target, b"new")
    assert caught.value.failures[0].code == "record.write"
    assert sorted(p.name for p in tmp_path.rglob("*")) == ["folder", "old"]


def test_sums_of_odd_names_are_what_sha256sum_reads(tmp_path: Path) -> None:
    run = Run.create("plan", [], tmp_path)
    for name in ("with space", "new\nline", "back\\slash", "ünï"):
        (run.path / name).write_text(name)
    run.finish(0)
    done = sha256sum(run.path)
    assert done.returncode == 0, done.stderr
    assert read.verify(run.path).ok
    (run.path / "new\nline").write_text("other")
    assert [(f.path, f.kind) for f in read.verify(run.path).findings] == [("new\nline", "changed")]
