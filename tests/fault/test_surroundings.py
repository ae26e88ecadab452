"""Who calls it and from where: a user without rights, a home or an entry, odd settings. Clear, and never a traceback."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
from pathlib import Path

import pytest

from tests.cli import NOBODY, PROGRAM, READ_ONLY, as_user, environment, invoke
from tests.unit.spec.conftest import Edit, example_fleet

from .conftest import Call

ANYBODY = 54321
"""A uid without an entry in /etc/passwd."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    """A folder that every user may enter and write: pytest's own are for one."""
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/"):
            folder.chmod(folder.stat().st_mode | 0o011)
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    return folder


@pytest.fixture
def closed_port() -> int:
    """A port of this machine that refuses."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def away(open_folder: Path, closed_port: int) -> Path:
    """A fleet whose host does not answer."""
    fleet = example_fleet(open_folder / "fleet")
    host = fleet / "hosts/example.yml"
    text = host.read_text().replace("address: 192.0.2.10\n  port: 22\n", f"address: 127.0.0.1\n  port: {closed_port}\n")
    assert str(closed_port) in text
    host.write_text(text)
    return fleet


@needs_root
def test_a_plain_user_can_do_all_that_needs_no_root_here(away: Path, open_folder: Path) -> None:
    folders = {"B300KIT_FLEET": away, "B300KIT_RUNS": open_folder / "runs", "B300KIT_CACHE": open_folder / "cache"}
    assert as_user(NOBODY, "fleet.check", **folders).code == 0
    assert as_user(NOBODY, "sim.status", **folders).code == 0
    ran = as_user(NOBODY, "provision", "--host", "example", **folders)
    assert (ran.code, ran.codes) == (7, ["ssh.unreachable"])
    assert as_user(NOBODY, "record.verify", **folders).code == 0


@needs_root
@pytest.mark.parametrize("words", [("sim.up", "--name", "fault-none"), ("sim.down", "--all")])
def test_simulated_hosts_without_root_or_sudo(open_folder: Path, words: tuple[str, ...]) -> None:
    programs = open_folder / "programs"
    programs.mkdir()
    for program in (p for folder in ("/usr/sbin", "/usr/bin") for p in Path(folder).iterdir() if p.name != "sudo"):
        with contextlib.suppress(FileExistsError):
            (programs / program.name).symlink_to(program)
    ran = as_user(NOBODY, *words, B300KIT_CACHE=open_folder / "cache", PATH=programs)
    assert (ran.code, ran.codes) == (2, ["sim.sudo"])
    assert ran.document["failures"][0]["next"] == "install sudo, or run as root"


@needs_root
def test_a_user_without_an_entry_is_told_so(away: Path, open_folder: Path) -> None:
    folders = {"B300KIT_FLEET": away, "B300KIT_RUNS": open_folder / "runs", "B300KIT_CACHE": open_folder / "cache"}
    ran = as_user(ANYBODY, "provision", "--host", "example", **folders)
    assert (ran.code, ran.codes) == (7, ["ssh.client"])
    assert f"No user exists for uid {ANYBODY}" in ran.document["failures"][0]["found"]
    host = away / "hosts/example.yml"
    host.write_text(host.read_text().replace("# identity_file:", "identity_file:"))
    ran = as_user(ANYBODY, "provision", "--host", "example", **folders)
    assert (ran.code, ran.codes) == (2, ["ssh.home"])


@needs_root
def test_what_may_not_be_read_is_not_empty(away: Path, open_folder: Path) -> None:
    for path in (away / "hosts/example.yml", away / "hosts", away):
        mode = path.stat().st_mode
        path.chmod(0)
        ran = as_user(NOBODY, "fleet.check", B300KIT_FLEET=away)
        assert (ran.code, "Permission denied" in ran.document["failures"][0]["found"]) == (2, True)
        path.chmod(mode)
    runs = open_folder / "runs"
    runs.mkdir(mode=0o700)
    for task in ("record.list", "record.show", "record.verify"):
        ran = as_user(NOBODY, task, B300KIT_RUNS=runs)
        assert (ran.code, ran.codes) == (2, ["record.unreadable"])
    ran = as_user(NOBODY, "provision", "--host", "example", B300KIT_FLEET=away, B300KIT_RUNS=runs)
    assert (ran.code, ran.codes) == (1, ["record.write"])


@needs_root
def test_a_home_of_somebody_else_is_no_fault_of_standard_output(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    ran = as_user(NOBODY, "fleet.check", HOME=home)
    assert (ran.code, ran.codes) == (2, ["cli.config"])
    assert ".invoke.yaml" in ran.document["failures"][0]["found"]


@pytest.mark.parametrize("text", ["a: [", "- a", "\tb"])
def test_settings_of_invoke_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / ".invoke.yaml").write_text(text)
    ran = invoke("fleet.check", HOME=tmp_path)
    assert (ran.code, ran.codes) == (2, ["cli.config"])
    assert "Traceback" not in ran.err


def test_invokes_own_options_with_a_wrong_value() -> None:
    done = subprocess.run([PROGRAM, "-T", "x", "fleet.check"], env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "wrong type" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_a_cron_job_lacks_is_not_missed(away: Path, open_folder: Path) -> None:
    """No HOME, no locale, no terminal, folders that are not there: the host is what is told about."""
    folders = {"B300KIT_FLEET": str(away), "B300KIT_RUNS": str(open_folder / "runs")}
    bare = {"PATH": "/usr/bin:/bin", "LC_ALL": "C", "TMPDIR": "/none", "XDG_RUNTIME_DIR": "/none", **folders}
    command = ["setsid", "--wait", str(PROGRAM), "plan", "--host", "example", "--format", "json"]
    done = subprocess.run(command, cwd="/", env=bare, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 7
    assert [f["code"] for f in json.loads(done.stdout)["failures"]] == ["ssh.unreachable"]


@pytest.mark.parametrize("name", ["a b", "100%time", "it's"])
def test_a_home_and_a_runtime_folder_of_any_name(away: Path, open_folder: Path, name: str) -> None:
    """What ssh splits at spaces or expands: the host's own answer is told, so ssh took both."""
    folder = open_folder / name
    folder.mkdir(mode=0o700)
    host = away / "hosts/example.yml"
    host.write_text(host.read_text().replace("# identity_file:", "identity_file:"))
    variables = {"HOME": folder, "XDG_RUNTIME_DIR": folder, "B300KIT_FLEET": away, "B300KIT_RUNS": open_folder / "runs"}
    ran = invoke("probe", "--host", "example", **variables)
    assert (ran.code, ran.codes) == (7, ["ssh.unreachable"])
    assert "Connection refused" in ran.document["failures"][0]["found"]


def test_arguments_that_are_not_text_are_recorded(away: Path, open_folder: Path) -> None:
    odd = os.fsdecode(os.fsencode(open_folder) + b"/\xff.prom")
    runs = open_folder / "runs"
    ran = invoke("drift", "--host", "example", "--textfile", odd, B300KIT_FLEET=away, B300KIT_RUNS=runs)
    assert (ran.code, ran.codes) == (7, ["ssh.unreachable"])
    (run,) = runs.glob("2*")
    assert odd.replace("\udcff", "\\udcff") in json.loads((run / "run.json").read_text())["argv"]
    assert Path(odd).is_file()


@pytest.mark.parametrize(
    ("task", "option", "code"), [("drift", "--textfile", "metrics.write"), ("verify", "--junit", "junit.write")]
)
def test_a_file_that_cannot_be_written_costs_no_outcome(away: Path, open_folder: Path, task: str, option: str, code: str) -> None:
    file = "/proc/none/kit.out"
    ran = invoke(task, "--host", "example", option, file, B300KIT_FLEET=away, B300KIT_RUNS=open_folder / "runs")
    assert (ran.code, ran.codes, ran.ends()) == (1, [code, "ssh.unreachable"], {"example": 7})
    assert ran.document["failures"][0]["where"] == file
    assert Path(ran.document["result"]["report"]).is_file()


def test_a_byte_order_mark_and_line_ends_of_windows_are_read(fleet: Path, edit: Edit, refused: Call) -> None:
    host = fleet / "hosts/example.yml"
    good = host.read_bytes()
    host.write_bytes(b"\xef\xbb\xbf" + good.replace(b"\n", b"\r\n"))
    assert invoke("fleet.check", B300KIT_FLEET=fleet).document["result"]["fleets"][0]["hosts"] == ["example"]
    line = good[: good.index(b"  sms: 148")].count(b"\n") + 1
    host.write_bytes(b"\xef\xbb\xbf" + good.replace(b"  sms: 148", b"  smss: 148").replace(b"\n", b"\r\n"))
    assert f"example.yml:{line} gpus.smss" in refused("fleet.check").document["failures"][0]["where"]


@needs_root
def test_a_checkout_that_cannot_be_written(away: Path, tmp_path: Path) -> None:
    """Its own runs folder is then no place for a record; another is."""
    command = [*READ_ONLY, str(PROGRAM), "plan", "--host", "example", "--format", "json"]
    for variables, end in (({}, (1, "record.write")), ({"B300KIT_RUNS": tmp_path / "runs"}, (7, "ssh.unreachable"))):
        chosen = environment(B300KIT_FLEET=away, **variables)
        done = subprocess.run(command, cwd="/", env=chosen, capture_output=True, text=True, check=False)
        document = json.loads(done.stdout)
        assert (done.returncode, document["failures"][0]["code"]) == end
        assert "Traceback" not in done.stderr
