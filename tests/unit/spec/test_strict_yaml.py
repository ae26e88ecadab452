"""The YAML that a spec may use."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.spec.strict_yaml import MAX_BYTES, Problem, read


def test_values_are_those_of_yaml_1_2() -> None:
    text = "a: 1\nb: -2.5\nc: true\nd: ~\ne: text\nf: '1'\ng: [1, x]\nh: {i: 1e3}\nj: 580.65.06\nk: .5\n"
    document = read(text)
    assert document.problems == []
    expected: dict[str, Any] = {"a": 1, "b": -2.5, "c": True, "d": None, "e": "text", "f": "1", "g": [1, "x"]}
    assert document.value == {**expected, "h": {"i": 1000.0}, "j": "580.65.06", "k": 0.5}


def test_every_path_has_its_line() -> None:
    document = read("# comment\na: 1\nb:\n  c: [1,\n      2]\n")
    assert document.lines[("a",)] == 2
    assert document.lines[("b", "c")] == 4
    assert document.lines[("b", "c", 1)] == 5


def only(text: str) -> Problem:
    problems = read(text).problems
    assert len(problems) == 1, problems
    return problems[0]


@pytest.mark.parametrize(
    ("text", "code", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "yaml.duplicate_key", 3),
        ("a:\n  b: 1\n  b: 1\n", "yaml.duplicate_key", 3),
        ("a: !!python/object/apply:os.system [id]\n", "yaml.tag", 1),
        ("a: !custom 1\n", "yaml.tag", 1),
        ("!!map {a: 1}\n", "yaml.tag", 1),
        ("a: &x 1\n", "yaml.alias", 1),
        ("<<: {a: 1}\n", "yaml.merge", 1),
        ("a: 1\n---\nb: 1\n", "yaml.documents", 2),
        ("a: [1\n", "yaml.syntax", 2),
        ("a: 1\n\tb: 2\n", "yaml.syntax", 2),
        ("? [a]\n: 1\n", "yaml.key", 1),
        ("[" * 100 + "]" * 100, "yaml.depth", 1),
        ("a: '" + "x" * MAX_BYTES + "'", "yaml.size", 0),
        ("a: \x01\n", "yaml.syntax", 0),
    ],
)
def test_what_is_refused(text: str, code: str, line: int) -> None:
    problem = only(text)
    assert (problem.code, problem.line) == (code, line)
    assert problem.expected
    assert problem.found
    assert problem.next


@pytest.mark.parametrize("text", ["[" * 100_000, 'a: "\\ud800"'])
def test_what_either_parser_refuses_in_its_own_words(text: str) -> None:
    assert only(text).code in ("yaml.depth", "yaml.syntax", "yaml.encoding")


def test_an_alias_bomb_is_never_expanded() -> None:
    text = "a: &a [x, x]\n" + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [*{chr(97 + i)}, *{chr(97 + i)}]\n" for i in range(20))
    assert {problem.code for problem in read(text).problems} == {"yaml.alias"}


@pytest.mark.parametrize(
    "word", ["yes", "No", "ON", "off", "y", "N", "017", "0o17", "0x1F", "1_000", "12:30", "1:2:3", ".nan", "-.inf"]
)
def test_what_yaml_versions_read_differently_is_refused_plain_and_taken_quoted(word: str) -> None:
    problem = only(f"a: {word}\n")
    assert problem.code == "yaml.ambiguous"
    assert problem.path == ("a",)
    quoted = read(f'a: "{word}"\n')
    assert quoted.problems == []
    assert quoted.value == {"a": word}


@given(st.text(max_size=300))
def test_any_text_ends_in_a_value_or_problems(text: str) -> None:
    document = read(text)
    assert document.problems or document.value is None or document.lines


# JSON writes what lies beyond U+FFFF as two escapes, which YAML reads as two characters.
_TEXT = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=8)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**60), 2**60) | _TEXT,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
        max_leaves=8,
    )
)
def test_what_json_writes_is_read_back(value: Any) -> None:
    document = read(json.dumps({"top": value}))
    assert document.problems == []
    assert document.value == {"top": value}
