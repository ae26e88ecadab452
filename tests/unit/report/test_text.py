"""What a person reads in a terminal: complete, narrow or wide, coloured or not, and safe."""

from __future__ import annotations

import re

import pytest

from kit.errors import failure
from kit.outcome import HostOutcome
from kit.plan.model import Action, ManagedFile, Step
from kit.report import text
from kit.report.diff import file_diff
from kit.report.terminal import Look

from . import sample

PLAIN = Look(100)
ALL = (*sample.STEPS, sample.REBOOT, *sample.REFUSE)
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def test_the_summary_counts_and_names_reboots_only_when_there_are_some() -> None:
    assert text.plan_summary(sample.plan()) == "5 change, 0 refuse, 3 keep"
    assert text.plan_summary(sample.plan(steps=ALL)) == "5 change, 2 refuse, 1 reboot, 3 keep"


def test_a_plan_shows_all_but_what_is_kept_and_counts_that() -> None:
    steps = tuple(step for step in ALL if step.action is not Action.REFUSE)
    shown = text.plan_text(sample.plan(steps=steps), where=PLAIN)
    for step in steps:
        assert (step.id in shown) is (step.action is not Action.KEEP)
        if step.action is not Action.KEEP:
            assert step.reason in shown
    assert "3 things are as declared already; --verbose shows them" in shown
    assert "gpus.sms" in text.plan_text(sample.plan(steps=ALL), verbose=True, where=PLAIN)


def test_without_colour_the_action_is_a_sign_and_a_word() -> None:
    lines = text.plan_text(sample.plan(steps=ALL), where=PLAIN).splitlines()
    assert any(line.startswith("  ~ change    cpu.governor") for line in lines)
    assert any(line.startswith("  x refuse  gpus.mig") for line in lines)
    assert any(line.startswith("  ! reboot    cpu.cmdline") for line in lines)


def test_refusals_stand_together_at_the_end_each_with_its_next_step() -> None:
    shown = text.plan_text(sample.plan(steps=(*sample.REFUSE, *sample.STEPS)), where=PLAIN)
    head = shown.index("Refused: nothing is applied to b300-01 until these 2 are mended")
    assert all(shown.index(step.id) > head for step in sample.REFUSE)
    assert all(shown.index(step.id) < head for step in sample.STEPS if step.action is Action.CHANGE)
    assert shown.count("next     ") == 2
    assert "nvidia-smi -i 1 -mig 0" in shown


def test_a_file_is_shown_as_a_unified_diff_instead_of_hashes() -> None:
    shown = text.plan_text(sample.plan(), where=PLAIN)
    assert '-  "log-driver": "json-file"' in shown
    assert '+  "live-restore": true,' in shown
    assert "--- /dev/null  on the host" in shown
    assert "c0ffee" not in shown


def test_a_change_of_mode_alone_has_no_diff_and_shows_both() -> None:
    file = ManagedFile(path="/etc/b300kit/a", content="same\n")
    step = Step(
        id="a.b", action=Action.CHANGE, reason="mode", expected="0644", found="0600", file=file, current="same\n", role="node"
    )
    assert file_diff(step) == ()
    assert "found    0600  expected 0644" in text.plan_text(sample.plan(steps=(step,)), where=PLAIN)


def test_a_file_that_was_not_read_is_not_called_new() -> None:
    file = ManagedFile(path="/etc/b300kit/a", content="one\ntwo\n")
    lines = file_diff(Step(id="a.b", action=Action.CHANGE, reason="r", file=file, current=None))
    assert [line.kind for line in lines] == ["head", "note", "add", "add"]
    assert not any("/dev/null" in line.text for line in lines)


def test_a_long_diff_is_cut_and_says_so() -> None:
    file = ManagedFile(path="/etc/b300kit/a", content="".join(f"line {n}\n" for n in range(200)))
    plan = sample.plan(steps=(Step(id="a.b", action=Action.CHANGE, reason="r", file=file, current=""),))
    shown = text.plan_text(plan, where=PLAIN)
    assert "line 199" not in shown
    assert re.search(r"and \d+ more lines; --verbose shows them", shown)
    assert "line 199" in text.plan_text(plan, verbose=True, where=PLAIN)


@pytest.mark.parametrize("width", [32, 46, 80, 140])
@pytest.mark.parametrize("colour", [False, True])
def test_no_line_is_wider_than_the_terminal(width: int, colour: bool) -> None:
    where = Look(width, colour)
    hosts = {
        "b300-01": HostOutcome(0, {"apply": {"changed": 5, "seconds": 31.24}}),
        "b": HostOutcome(7, {}, (sample.LOST,)),
    }
    for shown in (
        text.plan_text(sample.plan(steps=ALL), verbose=True, where=where),
        text.facts_summary("b300-01", sample.facts(), sample.spec(), verbose=True, where=where),
        text.host_table(hosts, where),
    ):
        assert ("\x1b" in shown) is colour
        assert max(len(ANSI.sub("", line)) for line in shown.splitlines()) <= width


def test_the_same_words_with_and_without_colour() -> None:
    plan = sample.plan(steps=ALL)
    coloured = "\n".join(line.rstrip() for line in ANSI.sub("", text.plan_text(plan, where=Look(100, True))).splitlines())
    assert coloured == text.plan_text(plan, where=PLAIN)


def test_the_host_table_has_the_troubled_first_and_all_columns() -> None:
    hosts = {
        "alpha": HostOutcome(0, {"apply": {"changed": 5, "seconds": 31.24}, "planned": "5 change, 0 refuse, 2 keep"}),
        "beta": HostOutcome(3, {"steps": [{"action": "change"}, {"action": "keep"}, {"action": "reboot"}]}),
        "gamma": HostOutcome(7, {}, (sample.LOST, failure("a.b", "c"))),
    }
    lines = text.host_table(hosts, PLAIN).splitlines()
    assert lines[0].split() == ["host", "outcome", "changes", "seconds", "note"]
    order = [line.split()[0] for line in lines[2:] if line[:1].isalpha()]
    assert order == ["beta", "gamma", "alpha"]
    assert re.search(r"alpha +ok +5 +31\.2 +5 change", "\n".join(lines))
    assert "2 pending" in next(line for line in lines if line.startswith("beta"))
    assert re.search(r"gamma +unreachable +- +- ", "\n".join(lines))
    assert "(and 1 more)" in "\n".join(lines)
    assert lines[-1] == "1 of 3 hosts ended well"


def test_not_run_is_not_zero_in_the_outside_table() -> None:
    shown = text.outside_table({"alpha": {"passed": 3, "failed": 0, "skipped": 1}, "beta": {}}, PLAIN)
    assert re.search(r"alpha +3 +0 +1", shown)
    assert shown.count("not run") == 3


def test_facts_say_not_verified_and_count_what_they_fold() -> None:
    shown = text.facts_summary("b300-01", sample.facts(), sample.spec(), where=PLAIN)
    assert "not verified: all_reduce_perf is not on the host" in shown
    assert "148 (all 4 GPUs)  (declared 148)" in shown
    assert "services 2 (1 not verified)" in shown
    assert "docker.service" not in shown
    assert "docker.service" in text.facts_summary("b300-01", sample.facts(), verbose=True, where=PLAIN)


@pytest.mark.parametrize(
    "hostile", ["\x1b[2J\x1b[31mred", "[bold red]markup[/]", "a\rb", "\u202egpj.exe", "\x9b31m", "a\x00b", "\u2028", "\ud800"]
)
def test_text_from_a_host_cannot_drive_the_terminal(hostile: str) -> None:
    steps = (
        Step(
            id="a.b", action=Action.REFUSE, reason=f"r {hostile}", expected=hostile, found=hostile, next=hostile,
            file=ManagedFile(path="/etc/b300kit/a", content="x\n"), current=f"{hostile}\n",
        ),
    )  # fmt: skip
    facts = sample.facts(sysctls={"a": hostile})
    bad = failure("a.b", hostile, hostile, hostile, hostile)
    for shown in (
        text.plan_text(sample.plan(steps=steps), verbose=True, where=PLAIN),
        text.facts_summary(hostile, facts, verbose=True, where=PLAIN),
        text.host_table({hostile: HostOutcome(1, {}, (bad,))}, PLAIN),
    ):
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028\ud800]", shown)
        assert "markup" not in hostile or "[bold red]markup[/]" in shown


def test_where_something_is_refused_a_change_is_one_line_and_the_refusal_is_whole() -> None:
    plan = sample.plan(steps=(*sample.REFUSE, *sample.STEPS))
    shown = text.plan_text(plan, where=PLAIN)
    assert "+++" in text.plan_text(sample.plan(), where=PLAIN)
    assert "+++" not in text.plan_text(sample.plan(), where=PLAIN, brief=True)
    assert "+++" not in shown
    assert all(sum(f" {step.id} " in line for line in shown.splitlines()) == 1 for step in plan.of(Action.CHANGE))
    assert all(step.next in " ".join(shown.split()) for step in sample.REFUSE)
    assert "+++" in text.plan_text(plan, verbose=True, where=PLAIN, brief=True)


def test_what_an_apply_did_is_told_by_the_look_after_it() -> None:
    before = sample.plan(steps=sample.STEPS)
    done, *left = before.of(Action.CHANGE)
    after = before.model_copy(
        update={"steps": tuple(s.model_copy(update={"action": Action.KEEP}) if s is done else s for s in before.steps)}
    )
    lines = text.applied_text(before, after, "2 changed in 9 s", where=PLAIN).splitlines()
    word = {line.split()[2]: line.split()[1] for line in lines if line.startswith("  ~")}
    assert lines[0].endswith(": 2 changed in 9 s")
    assert word[done.id] == "changed"
    assert {word[step.id] for step in left} == {"FAILED"}
    unseen = text.applied_text(before, before, "", where=PLAIN)
    assert "not verified" in unseen.splitlines()[0]
    assert "changed" not in {line.split()[1] for line in unseen.splitlines() if line.startswith("  ~")}
