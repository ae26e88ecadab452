"""The module that writes files, on real folders: whole or not at all, kept, refused where it would write elsewhere."""

from __future__ import annotations

import grp
import os
import pwd
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.apply import modules

ME = pwd.getpwuid(os.getuid()).pw_name
MINE = grp.getgrgid(os.getgid()).gr_name


def entry(path: Path | str, content: str = "new\n", mode: str = "0640", **more: Any) -> dict[str, Any]:
    return {"path": str(path), "content": content, "mode": mode, "owner": ME, "group": MINE, **more}


def put(*files: dict[str, Any], prelude: str = "", **more: Any) -> dict[str, Any]:
    return modules.run(modules.MANAGED_FILES, {"files": list(files), **more}, prelude=prelude)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_files_and_missing_folders_are_made_whatever_the_umask(tmp_path: Path) -> None:
    found = put(entry(tmp_path / "a/b/one"), entry(tmp_path / "two", mode="0755"), prelude="import os; os.umask(0o077)")
    assert found["changed"] is True
    assert [f["path"] for f in found["files"]] == [str(tmp_path / "a/b/one"), str(tmp_path / "two")]
    assert (tmp_path / "a/b/one").read_text() == "new\n"
    assert [mode(tmp_path / p) for p in ("a", "a/b", "a/b/one", "two")] == [0o755, 0o755, 0o640, 0o755]


def test_a_folder_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    (tmp_path / "private").mkdir(mode=0o700)
    put(entry(tmp_path / "private/file"))
    assert mode(tmp_path / "private") == 0o700


def test_the_second_call_changes_nothing(tmp_path: Path) -> None:
    put(entry(tmp_path / "file"))
    before = (tmp_path / "file").stat()
    found = put(entry(tmp_path / "file"))
    assert (found["changed"], found["files"]) == (False, [])
    after = (tmp_path / "file").stat()
    # Not the time of access: looking whether it changed is a read.
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (before.st_ino, before.st_mtime_ns, before.st_ctime_ns)


def test_the_old_file_is_kept_beside_the_new_one_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    path.chmod(0o604)
    backup = Path(put(entry(path))["files"][0]["backup"])
    assert backup.parent == tmp_path
    assert backup.name.startswith("file.")
    assert backup.name.endswith("~")
    assert (backup.read_text(), mode(backup)) == ("old\n", 0o604)
    assert (path.read_text(), mode(path)) == ("new\n", 0o640)
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(["file", backup.name])


def test_another_mode_alone_is_mended_without_a_copy(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("new\n")
    (tmp_path / "file").chmod(0o600)
    found = put(entry(tmp_path / "file"))
    assert found["files"] == [{"path": str(tmp_path / "file"), "backup": ""}]
    assert [(p.name, mode(p)) for p in tmp_path.iterdir()] == [("file", 0o640)]


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_another_owner_is_mended(tmp_path: Path) -> None:
    found = put(entry(tmp_path / "file") | {"owner": "nobody", "group": "nogroup"})
    assert found["changed"] is True
    assert (tmp_path / "file").owner() == "nobody"
    assert put(entry(tmp_path / "file"))["changed"] is True
    assert (tmp_path / "file").owner() == ME


def test_a_file_that_its_own_program_does_not_accept_stays_out(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    refuse = "sh -c 'grep -q good %s || { echo line 1 of %s is bad >&2; exit 3; }'"
    found = put(entry(path, check_with=refuse))
    assert found["failed"] is True
    assert found["msg"] == f"{path}: failed to validate: sh ended with 3: line 1 of {path} is bad"
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", "old\n")]
    assert put(entry(path, "good\n", check_with=refuse))["changed"] is True


def test_a_missing_checker_is_no_acceptance(tmp_path: Path) -> None:
    found = put(entry(tmp_path / "file", check_with="/no/such/program %s"))
    assert "failed to validate" in found["msg"]
    assert list(tmp_path.iterdir()) == []


def test_what_was_written_before_a_failure_is_told(tmp_path: Path) -> None:
    found = put(entry(tmp_path / "one"), entry(tmp_path / "two", check_with="false"), entry(tmp_path / "three"))
    assert found["failed"] is True
    assert found["changed"] is True
    assert [f["path"] for f in found["files"]] == [str(tmp_path / "one")]
    assert [p.name for p in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"path": "relative"}, "relative: not an absolute path"),
        ({"path": "/tmp/../etc/x"}, "/tmp/../etc/x: not an absolute path without . and .."),
        ({"mode": "rw"}, "mode 'rw' is not octal"),
        ({"owner": "no-such-user"}, "no-such-user"),
        ({"group": "no-such-group"}, "no-such-group"),
    ],
)
def test_a_mistake_in_the_last_file_is_found_before_the_first_is_written(
    tmp_path: Path, change: dict[str, str], said: str
) -> None:
    found = put(entry(tmp_path / "one"), entry(tmp_path / "two") | change)
    assert found["failed"] is True
    assert said in found["msg"]
    assert list(tmp_path.iterdir()) == []


def test_links_are_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").write_text("theirs\n")
    (tmp_path / "folder").symlink_to(elsewhere)
    (tmp_path / "file").symlink_to(elsewhere / "file")
    (tmp_path / "dangling").symlink_to(elsewhere / "new")
    for path, link in (("folder/file", "folder"), ("file", "file"), ("dangling", "dangling")):
        found = put(entry(tmp_path / path))
        assert found["failed"] is True
        assert f"{tmp_path / link}: a symbolic link to {elsewhere}" in found["msg"]
    assert [(p.name, p.read_text()) for p in elsewhere.iterdir()] == [("file", "theirs\n")]
    assert (tmp_path / "file").is_symlink()


def test_a_link_planted_where_the_temporary_file_goes_is_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("theirs\n")
    (tmp_path / ".file.b300kit-new").symlink_to(tmp_path / "theirs")
    assert put(entry(tmp_path / "file"))["changed"] is True
    assert (tmp_path / "theirs").read_text() == "theirs\n"
    assert (tmp_path / "file").read_text() == "new\n"


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "plain").write_text("")
    assert f"{tmp_path / 'folder'}: not a regular file" in put(entry(tmp_path / "folder"))["msg"]
    assert f"{tmp_path / 'pipe'}: not a regular file" in put(entry(tmp_path / "pipe"))["msg"]
    assert f"{tmp_path / 'plain'}: Not a directory" in put(entry(tmp_path / "plain/file"))["msg"]


def test_a_dry_run_says_what_would_change_and_makes_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("old\n")
    found = put(
        entry(tmp_path / "file", check_with="false"), entry(tmp_path / "new/file"), _ansible_check_mode=True, _ansible_diff=True
    )
    assert [f["path"] for f in found["files"]] == [str(tmp_path / "file"), str(tmp_path / "new/file")]
    assert [(d["before"], d["after"]) for d in found["diff"]] == [("old\n", "new\n"), ("", "new\n")]
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [("file", "old\n")]


KILL = """
import os, signal
plain = os.{call}
def last(*words, **more):
    os.kill(os.getpid(), signal.SIGKILL)
os.{call} = last
"""


@pytest.mark.parametrize("call", ["fchown", "fsync", "link", "rename"])
def test_killed_at_any_step_the_file_is_the_old_one_and_the_next_run_cleans_up(tmp_path: Path, call: str) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    process = modules.start(modules.MANAGED_FILES, {"files": [entry(path)]}, prelude=KILL.format(call=call))
    process.communicate(timeout=60)
    assert process.returncode == -9
    assert path.read_text() == "old\n"
    assert put(entry(path))["changed"] is True
    assert path.read_text() == "new\n"
    left = [p for p in tmp_path.iterdir() if p != path]
    assert [p.read_text() for p in left] == ["old\n"] * len(left)
    assert all(p.name.endswith("~") for p in left)


def test_killed_with_sigkill_while_its_check_runs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old\n")
    files = [entry(path, check_with=f"sh -c 'touch {tmp_path}/runs; exec sleep 5' %s")]
    process = modules.start(modules.MANAGED_FILES, {"files": files})
    deadline = time.monotonic() + 30
    while not (tmp_path / "runs").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert path.read_text() == "old\n"
    assert put(entry(path))["changed"] is True
    assert not (tmp_path / ".file.b300kit-new").exists()


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB with one file in it and no room left."""
    if os.getuid() != 0:
        pytest.skip("only root mounts")
    folder = tmp_path / "full"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k,mode=755", "none", str(folder)], check=True)
    try:
        (folder / "file").write_text("old\n")
        with pytest.raises(OSError), (folder / "filler").open("wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_leaves_the_old_file(full: Path) -> None:
    found = put(entry(full / "file", "x" * 20000))
    assert found["failed"] is True
    assert found["msg"] == f"{full / 'file'}: No space left on device"
    assert sorted(p.name for p in full.iterdir()) == ["file", "filler"]
    assert (full / "file").read_text() == "old\n"
    (full / "filler").unlink()
    assert put(entry(full / "file", "x" * 20000))["changed"] is True


def test_a_read_only_file_system_is_told(full: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(full)], check=True)
    assert put(entry(full / "file"))["msg"] == f"{full / 'file'}: Read-only file system"
