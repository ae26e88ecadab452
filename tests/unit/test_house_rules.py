"""The rules of the house that a text search can hold, over every file that git knows. Each rule is shown to be able to fail."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath

import pytest

from kit import paths

MAX_LINES = {"kit": 400, "tasks.py": 100, "tests": 600}
"""Test files hold tables."""
THIS = "tests/unit/test_house_rules.py"


@dataclass(frozen=True)
class Rule:
    """What must not stand in files that match ``where`` (globs of a path, or of its name)."""

    name: str
    pattern: str
    where: tuple[str, ...]
    planted: str
    """A line that breaks it."""
    why: str


PYTHON = ("*.py",)
ALL = ("*",)
ANSIBLE = ("roles/**/*.yml", "playbooks/*.yml", "playbooks/**/*.yml")
RULES = [
    Rule("shell", r"shell\s*=\s*True", PYTHON, "run(x, shell=True)", "a value of a spec could become a command"),
    Rule("os.system", r"\bos\.(system|popen)\(", PYTHON, "os.system(x)", "a value of a spec could become a command"),
    Rule("yaml.load", r"\byaml\.(load|load_all|full_load|unsafe_load)\(", PYTHON, "yaml.load(x)", "tags run code"),
    Rule("pickle", r"\b(pickle|marshal|dill)\.loads?\(", PYTHON, "pickle.loads(x)", "data runs code"),
    Rule("type ignore", r"#\s*type:\s*ignore(?!\[)", PYTHON, "x = y  # type: ignore", "name what is ignored"),
    Rule("ignore_errors", r"^\s*ignore_(errors|unreachable)\s*:", ANSIBLE, "  ignore_errors: true", "a swallowed failure"),
    Rule("failed_when", r"^\s*failed_when\s*:\s*(false|no)\b", ANSIBLE, "  failed_when: false", "a swallowed failure"),
    Rule("set_fact", r"\bset_fact\s*:", ANSIBLE, "  ansible.builtin.set_fact:", "the plan decides, roles only write"),
    Rule("raw shell", r"\bansible\.builtin\.(shell|raw)\s*:", ANSIBLE, "  ansible.builtin.shell: x", "use command with argv"),
    Rule(
        "host keys",
        r"StrictHostKeyChecking[= ]\s*(no|off|accept-new)\b|host_key_checking\s*[=:]\s*(false|no|0)\b",
        ALL,
        "-o StrictHostKeyChecking=no",
        "host keys are pinned",
    ),
    Rule(
        "registries",
        r"\b(pypi\.org|pythonhosted\.org|ghcr\.io|nvcr\.io|quay\.io|gcr\.io|registry-1\.docker\.io|hub\.docker\.com|registry\.npmjs\.org)\b",
        ALL,
        "https://pypi.org/simple",
        "the operator's own package settings say where packages come from",
    ),
    Rule("private paths", r"(?<![A-Za-z0-9_.)}-])/work/", ALL, "see /work/notes", "a path of whoever wrote this"),
    Rule("issue numbers", r"\bissues? #?[0-9]+\b", ALL, "as issue 2 says", "say it here, a reader has no tracker"),
    Rule(
        "left to do",
        r"\b(TODO|FIXME|XXX)\b",
        ("*.py", "*.yml", "*.j2", "*.md", "*.c", "*.sh"),
        "# TODO: later",
        "do it or leave it out",
    ),
    Rule("curl to shell", r"(curl|wget)[^|\n]*\|\s*(sudo\s+)?(ba)?sh\b", ALL, "curl http://x | sudo bash", "unchecked code"),
]


def matches(path: str, where: tuple[str, ...]) -> bool:
    pure = PurePosixPath(path)
    return any(pattern == "*" or pure.match(pattern) or pure.match(pattern.replace("**/", "*/*/")) for pattern in where)


@cache
def tracked() -> dict[str, str]:
    """Text files that git knows, or would know: what is ignored is left out, what is not yet added is not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=paths.ROOT, capture_output=True, check=True
    ).stdout
    out = {}
    for name in listed.decode().split("\0"):
        file = paths.ROOT / name
        if not name or file.is_symlink() or not file.is_file():
            continue
        try:
            out[name] = file.read_text("utf-8")
        except UnicodeDecodeError:
            continue
    return out


def breaks(rule: Rule, text: str) -> Iterator[int]:
    """Line numbers."""
    pattern = re.compile(rule.pattern)
    return (number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_rule_holds(rule: Rule) -> None:
    found = [
        f"{name}:{line}"
        for name, text in tracked().items()
        if name != THIS and matches(name, rule.where)
        for line in breaks(rule, text)
    ]
    assert not found, f"{rule.why}: {found}"


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_rule_can_fail_and_looks_at_something(rule: Rule) -> None:
    assert list(breaks(rule, f"fine\n{rule.planted}\n")) == [2]
    assert any(matches(name, rule.where) for name in tracked())


def test_a_module_fits_on_a_few_screens() -> None:
    long = {
        name: text.count("\n")
        for name, text in tracked().items()
        if name.endswith(".py") and text.count("\n") > MAX_LINES.get(PurePosixPath(name).parts[0], 1000)
    }
    assert not long


def test_each_role_declares_its_arguments() -> None:
    roles = {PurePosixPath(name).parts[1] for name in tracked() if name.startswith("roles/")}
    assert roles
    assert [role for role in sorted(roles) if f"roles/{role}/meta/argument_specs.yml" not in tracked()] == []


def test_requirements_are_pinned_with_hashes() -> None:
    lines = tracked()["requirements.lock"].splitlines()
    names = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert names
    assert all("==" in line and line.endswith("\\") for line in names)
    assert sum("--hash=sha256:" in line for line in lines) >= len(names)


def test_no_other_folders_than_those_the_design_names() -> None:
    named = {"kit", "playbooks", "roles", "images", "patches", "kernels", "tests", "fleet", "docs", ".ci"}
    assert {PurePosixPath(name).parts[0] for name in tracked() if "/" in name} <= named


def test_every_script_is_read_by_somebody() -> None:
    """What is marked executable starts with an interpreter, and the other way round nothing surprises."""
    for name in tracked():
        file = Path(paths.ROOT / name)
        if file.stat().st_mode & 0o100:
            assert file.read_bytes().startswith(b"#!"), f"{name} is executable but names no interpreter"
