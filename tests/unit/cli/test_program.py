"""The command line's contract: exit codes, one JSON document, data apart from progress."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from kit.cli.program import wants_json

from .conftest import Invoke, program


def test_only_data_on_standard_output_whatever_prints(invoke: Invoke) -> None:
    text = invoke("good")
    assert (text.code, text.out) == (0, "data\n")
    assert {"stray", "stray bytes", "stray child"} <= set(text.err.splitlines())
    document = invoke("good", "--format", "json").document
    assert (document["task"], document["result"]["path"]) == ("good", "/x")


@pytest.mark.parametrize(
    ("words", "code", "found"),
    [
        (["nothing"], "cli.usage", "'nothing'"),
        (["needs", "--vlaue", "x"], "cli.usage", "'--vlaue'"),
        (["needs"], "cli.missing_option", "nothing"),
        (["needs", "--value", ""], "cli.missing_option", "nothing"),
        (["needs", "x"], "cli.usage", "'x'"),
        (["needs", "--value", "x", "--number", "many"], "cli.usage", "many"),
        (["needs", "--value"], "cli.usage", "--value"),
        (["hosts"], "cli.missing_option", "nothing"),
        (["good", "broken"], "cli.usage", "good, broken"),
    ],
)
def test_usage_errors_exit_2(invoke: Invoke, words: list[str], code: str, found: str) -> None:
    told = invoke(*words, "--format=json")
    assert told.code == 2
    [failure] = told.document["failures"]
    assert (failure["code"], found in failure["found"].replace("\\", "")) == (code, True), failure
    assert failure["next"]


@pytest.mark.parametrize("words", [["nothing"], ["needs"], ["good", "--format=yaml"], ["--list", "nowhere"], []])
def test_usage_errors_in_text(invoke: Invoke, words: list[str]) -> None:
    text = invoke(*words)
    if not words:  # stock invoke shows its help
        assert (text.code, "Usage:" in text.out) == (0, True)
        return
    assert (text.code, text.out) == (2, "")
    assert text.err.startswith("error: ")
    assert "Traceback" not in text.err


def test_a_near_option_and_task_are_suggested(invoke: Invoke) -> None:
    assert "did you mean --value?" in invoke("needs", "--vlaue", "x").err
    assert "did you mean good?" in invoke("goood").err


def test_a_missing_tasks_file_is_a_usage_error(invoke: Invoke, root: Path) -> None:
    (root / "tasks.py").unlink()
    assert invoke("good", "--format", "json").code == 2


@pytest.fixture
def three_hosts(root: Path) -> str:
    """A fleet of three, as B300KIT_FLEET."""
    from kit import paths

    text = (paths.ROOT / "fleet/examples/example.yml").read_text()
    folder = root / "fleet"
    (folder / "hosts").mkdir(parents=True)
    (folder / "fleet.yml").write_text("schema_version: 1\ngroups: {few: [a, b]}\n")
    (folder / "lock.yml").write_text((paths.ROOT / "fleet/lock.yml").read_text())
    for number, name in enumerate("abc", 1):
        changed = text.replace("name: example", f"name: {name}").replace("192.0.2.10", f"192.0.2.1{number}")
        (folder / f"hosts/{name}.yml").write_text(changed)
    return str(folder)


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--host", "a"], 0), (["--hosts=a"], 0), (["--host", "few"], 8), (["--host", "all"], 8), (["--host=d,a"], 2)],
)
def test_hosts_and_their_exit(invoke: Invoke, three_hosts: str, words: list[str], code: int) -> None:
    told = invoke("hosts", *words, "--format", "json", B300KIT_FLEET=three_hosts)
    assert told.code == code
    if code != 2:
        document = told.document
        assert document["hosts"] == list(document["result"]["hosts"])
        assert all(host["steps"] == [] for host in document["result"]["hosts"].values())
        assert len(document["failures"]) == len(document["hosts"]) - 1


@pytest.mark.parametrize(
    ("words", "code", "worked"),
    [
        (["--host", "a"], 0, ["a"]),
        (["--host", "b"], 2, []),
        (["--host", "few"], 8, ["a"]),
        (["--host", "c,b"], 8, ["c"]),
        (["--host", "all"], 8, ["a", "c"]),
    ],
)
@pytest.mark.parametrize("fault", ["half-filled", "no lock line", "not YAML"])
def test_one_hosts_bad_file_ends_that_host_alone(
    invoke: Invoke, three_hosts: str, words: list[str], code: int, worked: list[str], fault: str
) -> None:
    bad = Path(three_hosts, "hosts/b.yml")
    text = bad.read_text()
    old, new = {
        "half-filled": ("sms: 148", "sms: null"),
        "no lock line": ("    - docker.io\n", "    - docker.io\n    - not-in-the-lock\n"),
        "not YAML": ("connection:", "connection: ["),
    }[fault]
    assert old in text
    bad.write_text(text.replace(old, new, 1))
    told = invoke("hosts", *words, "--format", "json", B300KIT_FLEET=three_hosts)
    document = told.document
    ends = {name: end["exit_code"] for name, end in document["result"].get("hosts", {}).items()}
    # The planted task ends well on the first host, with 3 on the second.
    assert [name for name in ends if name != "b"] == worked
    assert ends.get("b", 2) == 2
    assert told.code == code
    assert ("not usable, and not meant here: b" in told.err) == (code == 0)
    told_of_b = any("b.yml" in f["where"] or "b needs it" in f["found"] for f in document["failures"])
    assert told_of_b == (code != 0)


def test_a_file_of_another_name_costs_only_the_host_that_it_was_for(invoke: Invoke, three_hosts: str) -> None:
    Path(three_hosts, "fleet.yml").write_text("schema_version: 1\n")
    Path(three_hosts, "hosts/b.yml").rename(Path(three_hosts, "hosts/b.yaml"))
    assert invoke("hosts", "--host", "a", B300KIT_FLEET=three_hosts).code == 0
    told = invoke("hosts", "--host", "b", B300KIT_FLEET=three_hosts)
    assert (told.code, "rename it to b.yml" in told.err) == (2, True)


def test_a_bad_lock_concerns_all(invoke: Invoke, three_hosts: str) -> None:
    Path(three_hosts, "lock.yml").write_text("schema_version: 2\n")
    assert invoke("hosts", "--host", "a", B300KIT_FLEET=three_hosts).code == 2


def test_what_libraries_raise_keeps_all_failures_and_its_code(invoke: Invoke) -> None:
    told = invoke("refuses", "--format", "json")
    assert told.code == 4
    assert [failure["code"] for failure in told.document["failures"]] == ["a.b", "c.d"]
    assert invoke("refuses").err.count("error: ") == 2


@pytest.mark.parametrize("task", ["broken", "leaves", "nan"])
def test_a_fault_of_ours_is_short_exits_1_and_keeps_its_traceback(invoke: Invoke, task: str, root: Path) -> None:
    told = invoke(task, "--format", "json")
    assert told.code == 1
    [failure] = told.document["failures"]
    assert failure["code"] == "internal"
    assert "Traceback" not in told.err
    [kept] = (root / "cache/faults").iterdir()
    assert str(kept) in failure["next"]
    assert "Traceback" in kept.read_text()
    assert kept.stat().st_mode & 0o077 == 0


def test_debug_shows_the_traceback(invoke: Invoke) -> None:
    assert "Traceback" in invoke("broken", B300KIT_DEBUG="1").err


def test_stock_options_keep_working(invoke: Invoke) -> None:
    listed = invoke("--list")
    assert listed.code == 0
    assert "Ends well." in listed.out
    assert "Usage:" in invoke("--help").out
    helped = invoke("--help", "needs")
    assert (helped.code, "A value." in helped.out) == (0, True)
    assert "good" in invoke("--complete", "--", "invoke go").out.split()
    assert "--value" in invoke("--complete", "--", "invoke needs --").out.split()
    assert "complete" in invoke("--print-completion-script", "bash").out
    assert "invoke" in invoke("--version").out


def test_help_as_json_is_one_document_too(invoke: Invoke) -> None:
    assert "Ends well." in invoke("good", "--help", "--format", "json").document["result"]["help"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it_cleanly_with_its_children(root: Path, environment: dict[str, str], number: int, code: int) -> None:
    command = program("--search-root", str(root), "waits", "--format", "json")
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, cwd=root
    ) as process:
        assert process.stderr is not None
        child = int(process.stderr.readline())
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert process.returncode == code
    assert "cleaned" in err
    assert '"code": "cli.interrupted"' in out
    assert _gone(child)


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_a_reader_that_left_is_no_fault(root: Path, environment: dict[str, str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        program("--search-root", str(root), "good"), stdout=write, stderr=subprocess.PIPE, text=True, env=environment, check=False
    )
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_behind_standard_output_is_told(root: Path, environment: dict[str, str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program("--search-root", str(root), "good"),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
            check=False,
        )
    assert done.returncode == 1
    assert "No space left" in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["plan", "--format", "json"], True),
        (["plan", "--format=json"], True),
        (["plan", "--format", "text"], False),
        (["plan", "--host", "json"], False),
        (["--complete", "--", "plan --format json"], False),
        (["--complete", "--", "--format", "json"], False),
    ],
)
def test_json_is_recognised_before_parsing(words: list[str], expected: bool) -> None:
    assert wants_json(words) is expected


@pytest.mark.parametrize("option", ["--dry", "-R", "--echo", "--pty", "--warn-only", "--no-dedupe", "--hide=both", "-T=3"])
def test_an_option_of_invokes_that_would_be_ignored_is_refused(invoke: Invoke, option: str) -> None:
    """``--dry`` says that nothing runs; our commands run no shell through invoke, so it would apply for real."""
    places = [[option, "good"]] if option == "--no-dedupe" else [[option, "good"], ["good", option]]
    for words in places:
        told = invoke(*words, "--format", "json")
        [failure] = told.document["failures"]
        assert (told.code, failure["code"], "data" in told.out) == (2, "cli.ignored_option", False)
    assert "--check" in invoke("good", "--dry").err
    assert "invoke plan" in invoke("good", "--dry").err


@pytest.mark.parametrize("words", [[], ["--help"]])
def test_help_lists_the_commands_and_no_option_that_is_refused(invoke: Invoke, words: list[str]) -> None:
    told = invoke(*words)
    assert told.code == 0
    assert "Has a required option." in told.out
    assert "--search-root" in told.out
    assert "--dry" not in told.out


def test_a_word_too_many_is_told_as_the_option_that_it_was_meant_for(invoke: Invoke) -> None:
    assert "say `--host demo-a`" in invoke("hosts", "demo-a").err
    assert "say `--host" not in invoke("hosts", "--host", "a", "b").err
    assert "did you mean" not in invoke("hosts", "goood").err
    assert "say `--run latest`" in invoke("record.show", "latest", planted=False).err


def test_a_group_alone_tells_its_commands(invoke: Invoke) -> None:
    told = invoke("fleet", planted=False)
    assert told.code == 2
    assert "fleet.check, fleet.init, fleet.lock, fleet.schema" in told.err


@pytest.mark.parametrize("words", [["--number", "many"], ["--number=many"]])
def test_a_value_of_the_wrong_type_names_its_option(invoke: Invoke, words: list[str]) -> None:
    assert "--number has a value of the wrong type" in invoke("needs", "--value", "x", *words).err
