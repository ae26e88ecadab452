"""The page: whole, safe, self-contained, and honest about a run that was cut off or damaged."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from kit.errors import failure
from kit.outcome import HostOutcome
from kit.plan.model import Action, ManagedFile, Step
from kit.record import read
from kit.record.store import Run
from kit.report.html import TEMPLATES, render

from . import sample

VOID = {"meta", "link", "br", "hr", "img", "rect", "line"}


class Page(HTMLParser):
    """A strict enough reading: tags nest, and what is asked of the page can be asked here."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.headings: list[int] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch(r"h[1-6]", tag):
            self.headings.append(int(tag[1]))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def interrupt(run: Run) -> None:
    """As if the process that wrote it were gone."""
    document = json.loads((run.path / "run.json").read_text())
    (run.path / "run.json").write_text(json.dumps({**document, "pid_started": document["pid_started"] - 1}))


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    return render(sample.recorded(tmp_path_factory.mktemp("runs")).path)


def test_each_host_has_a_verdict_and_every_part_of_its_story(text: str) -> None:
    page = Page(text)
    assert "3 hosts: 1 as declared, 1 refused, 1 unreachable" in page.text
    assert "Finished, exit 8: outcomes differ." in page.text
    assert "5 changed, then verified: all 8 steps are as declared" in page.text
    assert "/etc/docker/daemon.json has other content" in page.text
    assert '- "log-driver": "json-file"' in page.text
    assert "Reload docker" in page.text
    assert "2 more had nothing to change." in page.text
    assert "Probed and planned again: all 8 steps are as declared." in page.text
    assert re.search(r"Live restore no yes", page.text)
    assert "nvidia-smi -i 1 -mig 0" in page.text
    assert "No route to host" in page.text
    assert "not verified: all_reduce_perf is not on the host" in page.text
    assert "GPUs 0-1, 3: on; GPU 2: off" in page.text
    assert "TP3" in page.text
    assert sample.plan().digest() in page.text


def test_what_the_outside_suite_skipped_is_told_apart(text: str) -> None:
    shown = Page(text).text
    assert "Seen from outside by the test suite: 2 passed, 0 failed, 1 skipped." in shown
    assert "test_cpuset_is_enforced skipped a container cannot prove it" in shown


def test_hosts_that_need_somebody_come_first_and_share_the_apply_stage_only_if_applied(text: str) -> None:
    page = Page(text)
    order = [w for w in page.words if w in ("b300-01", "b300-02", "b300-03")]
    assert order[:3] == ["b300-02", "b300-03", "b300-01"]
    assert page.text.count("apply (all hosts at once)") == 1
    assert "Nothing of it is applied while anything is refused." in page.text


def test_a_no_op_is_called_verified_by_its_first_look(tmp_path: Path) -> None:
    run = Run.create("provision", [], tmp_path)
    run.host("alpha").put("plan", sample.settled("alpha"))
    run.finish(0, [], {"alpha": 0})
    shown = Page(render(run.path)).text
    assert "alpha: as declared" in shown
    assert "All was as declared at the first look" in shown
    assert "Not verified" not in shown


def test_the_sums_are_on_the_page_and_were_checked(text: str, tmp_path: Path) -> None:
    run = sample.recorded(tmp_path)
    shown = Page(render(run.path)).text
    for line in (run.path / "SHA256SUMS").read_text().splitlines():
        assert line.split()[0] in shown
    assert "files of this record agree with their sums." in shown
    (run.path / "hosts/b300-01/plan.json").write_text("{}")
    shown = Page(render(run.path)).text
    assert "This record is not as it was written:" in shown
    assert re.search(r"hosts/b300-01/plan\.json changed", shown)


def test_the_page_asks_for_nothing_and_runs_nothing(text: str) -> None:
    page = Page(text)
    assert not {tag for tag, _ in page.tags} & {"script", "img", "iframe", "object", "embed", "base", "form", "audio", "video"}
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "action", "data", "xlink:href"):
                assert value is not None
                assert value.startswith(("#", "data:")), (tag, value)
    css = text[text.index("<style>") : text.index("</style>")]
    assert "@import" not in css
    assert "url(" not in css
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None
    assert policy.startswith("default-src 'none';")


def test_it_can_be_read_without_seeing_it(text: str) -> None:
    page = Page(text)
    assert page.headings[0] == 1
    assert page.headings.count(1) == 1
    assert all(b - a <= 1 for a, b in zip(page.headings, page.headings[1:], strict=False))
    assert all(a.get("scope") in ("col", "row") for tag, a in page.tags if tag == "th")
    assert next(a for tag, a in page.tags if tag == "html")["lang"] == "en"
    assert any(tag == "meta" and a.get("name") == "viewport" for tag, a in page.tags)
    for tag, a in page.tags:
        if tag == "svg":
            assert a.get("aria-hidden") == "true" or (a.get("role") == "img" and a.get("aria-labelledby"))


def test_ids_are_unique_and_references_lead_somewhere(text: str) -> None:
    page = Page(text)
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = [part for _, a in page.tags for part in (a.get("aria-labelledby") or "").split()]
    wanted += [(a.get("href") or "")[1:] for tag, a in page.tags if tag == "a"]
    assert set(wanted) <= set(ids)


def test_an_interrupted_run_says_so_and_claims_no_end(tmp_path: Path) -> None:
    run = sample.recorded(tmp_path, finish=False, hosts=1)
    assert "Still running when this page was made" in Page(render(run.path)).text
    interrupt(run)
    page = Page(render(run.path))
    assert "b300-01: interrupted" in page.text
    assert "in stage apply" in page.text
    assert re.search(r"apply 1\.4 s not ended", page.text)
    assert "Not verified: the host was not read again in this run." in page.text
    assert "Finished not recorded" in page.text
    assert "as declared" not in page.text.split("Planned")[0]
    assert any(a.get("class") == "unfinished" for tag, a in page.tags if tag == "rect")


@pytest.mark.parametrize("content", [None, "", "{", "[]"])
def test_a_corrupt_record_still_renders(tmp_path: Path, content: str | None) -> None:
    run = sample.recorded(tmp_path, hosts=1)
    (run.path / "run.json").unlink() if content is None else (run.path / "run.json").write_text(content)
    (run.path / "hosts/b300-01/facts.json").write_text("{")
    shown = Page(render(run.path)).text
    assert "The record of this run cannot be read." in shown
    assert "Not readable: run.json" in shown
    assert "Not readable: facts.json" in shown
    assert "cpu.governor" in shown


def test_a_run_without_hosts_renders(tmp_path: Path) -> None:
    run = Run.create("provision", [], tmp_path)
    run.finish(2, [failure("spec.unknown_key", "fleet/hosts/a.yml", "a known key", "gpu", "rename it")])
    shown = Page(render(run.path)).text
    assert "Finished, exit 2: usage or spec error." in shown
    assert "spec.unknown_key" in shown
    assert "Next: rename it" in shown


HOSTILE = "<script>alert(1)</script>"


def test_hostile_text_from_a_host_stays_text(tmp_path: Path) -> None:
    bad = f"\"'>{HOSTILE}<img src=x onerror=alert(1)>&amp;\x1b[31m\u202e"
    document = sample.facts_document()
    document["host"] |= {"hostname": bad, "kernel": bad, "next_kernel": {"unknown": bad}}
    document["cpu"] |= {"model": bad}
    document["gpu"]["xids_since_boot"] = [bad]
    document["services"] = {bad: document["services"]["docker.service"]}
    document |= {"sysctls": {bad: bad}, "notes": [bad]}
    step = Step(
        id=f"a.{bad}", action=Action.CHANGE, reason=bad, expected=bad, found=bad, next=bad, role="cpu",
        file=ManagedFile(path=f"/etc/{bad}", content=f"{bad}\n"), current=f"old {bad}\n",
    )  # fmt: skip
    run = Run.create(bad, ["invoke", bad], tmp_path)
    room = run.host("alpha")
    room.put("facts", document)
    room.put("plan", sample.plan("alpha", (step, *sample.REFUSE)))
    room.event({"host": "alpha", "role": bad, "task": bad, "status": "changed", "seconds": 1.0})
    sample.timed(room, bad, 0.0, 1.0, (failure(f"a.{bad}", bad, bad, bad, bad),))
    run.finish(11, [failure("x.y", bad, bad, bad, bad)], {"alpha": 11})
    text = render(run.path)
    page = Page(text)
    assert HOSTILE in page.text
    assert not any(tag in ("script", "img") or any(name.startswith("on") for name in a) for tag, a in page.tags)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert "alert(1)&gt;" in text


def test_report_writes_the_page_and_leaves_the_record_as_it_was(tmp_path: Path) -> None:
    run = sample.recorded(tmp_path)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    path = read.report(run.path)
    assert path == run.path / "report.html"
    assert {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file() and p != path} == before
    assert read.verify(run.path).ok
    assert not read.verify(run.path).findings


def _schemes() -> list[dict[str, str]]:
    css = (TEMPLATES / "page.css").read_text()
    blocks = re.findall(r":root\{([^}]*)\}", css)
    light = dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{3,6})", blocks[0]))
    return [light, {**light, **dict(re.findall(r"--([a-z-]+):(#[0-9a-f]{3,6})", blocks[1]))}]


def _luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(c * 2 for c in colour[1:])
    parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    "pair",
    ["ink page", "ink card", "soft page", "soft card", "link card", "good good-bg", "pending pending-bg", "bad bad-bg",
     "cut cut-bg", "open open-bg", "add add-bg", "drop drop-bg", "pending card", "bad card", "cut card"],
)  # fmt: skip
def test_every_text_has_contrast(scheme: int, pair: str) -> None:
    """WCAG 2.2, 1.4.3: 4.5 to 1."""
    front, back = (_luminance(_schemes()[scheme][name]) for name in pair.split())
    assert (max(front, back) + 0.05) / (min(front, back) + 0.05) >= 4.5


def test_what_the_plan_says_stands_above_what_was_seen_from_outside(tmp_path: Path) -> None:
    run = Run.create("verify", ["invoke", "verify"], tmp_path)
    run.host("n").put("spec", sample.spec("n"))
    run.host("n").put("plan", sample.plan("n"))
    (run.host("n").path / "outside.junit.xml").write_text(
        '<testsuites><testsuite><testcase name="test_swap"><properties><property name="what" value="swap"/></properties>'
        '<failure message="swap: expected none, found 8 GiB"/></testcase></testsuite></testsuites>'
    )
    seen = failure("outside.test_swap", "n: seen from outside: swap", "none", "8 GiB", "mend it")
    run.finish(5, (), {"n": HostOutcome(5, failures=(seen,))})
    shown = Page(render(run.path)).text
    assert "Finished, exit 5: check failed" in shown
    assert "keep; seen from outside: 1 failed" in shown
    assert "What went wrong" not in shown
    assert 0 < shown.index("/etc/docker/daemon.json has other content") < shown.index("swap: expected none, found 8 GiB")
