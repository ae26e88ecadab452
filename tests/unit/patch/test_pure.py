"""The pure parts: names, C arithmetic, globs, splices. Properties rather than examples where there is one."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kit.patch.answer import Answer, CannotPlace, Splice, merge, splice
from kit.patch.c_constants import blanked, constants, evaluate, launches
from kit.patch.model import Count, Meaning
from kit.patch.names import is_numbered, is_related, is_same, is_unrelated, snake
from kit.patch.report import State
from kit.patch.tree import matches

RESIDENT = Meaning(same=("*resident*block*",), different=("*_per_*",), related=("sm", "sms", "grid*"))


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("kResidentBlocks", "resident_blocks"),
        ("RESIDENT_BLOCKS", "resident_blocks"),
        ("residentBlocks", "resident_blocks"),
        ("g_resident_blocks", "resident_blocks"),
        ("NUM_SMS", "num_sms"),
        ("SM103Blocks", "sm_103_blocks"),
        ("k", "k"),
    ],
)
def test_names_are_compared_in_snake_case(name: str, plain: str) -> None:
    assert snake(name) == plain


def test_a_name_says_what_a_number_is_for() -> None:
    assert is_same("kMegaResidentBlocks", RESIDENT)
    assert not is_same("RESIDENT_BLOCKS_PER_SM", RESIDENT), "another quantity"
    assert is_related("NUM_SMS", RESIDENT) and is_related("gridSize", RESIDENT)
    assert not is_related("kSmemBytes", RESIDENT), "sm is a whole word, not a beginning"
    assert is_numbered("op_152", 152) and not is_numbered("NUM_SMS", 152)
    listed = Meaning(unrelated=("csrc/**/*.cuh:kStage",))
    assert not is_unrelated("csrc/a.cuh", "kOther", listed)


@given(st.text(alphabet="abcXYZ_019", min_size=1, max_size=30))
def test_snake_is_idempotent(name: str) -> None:
    once = snake(name)
    assert once == "" or snake(once).split("_")[-1] == once.split("_")[-1]
    assert once == once.lower()


INTEGERS = st.integers(min_value=0, max_value=10**6)
ARITHMETIC = st.recursive(
    INTEGERS.map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
    max_leaves=8,
)


@given(ARITHMETIC)
def test_c_arithmetic_is_what_python_computes(text: str) -> None:
    assert evaluate(text) == eval(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("152", 152),
        ("152u", 152),
        ("0x98", 152),
        ("1'52", 152),
        ("(4 * 38)", 152),
        ("8 << 2", 32),
        ("304 / 2", 152),
        ("0152", None),  # octal in C
        ("152.0f", None),
        ("N + 1", None),
        ("-7 / 2", None),  # C and Python round differently
        ("1 / 0", None),
        ("", None),
    ],
)
def test_c_numbers(text: str, value: int | None) -> None:
    assert evaluate(text) == value


CPP = b"""\
#pragma once
// constexpr int kComment = 152;
/* #define BLOCK 152 */
#define MEGA_RESIDENT_BLOCKS (4 * 38)
constexpr int kResidentBlocks = 152;  // 152 SMs
static const unsigned kBraced{152u};
enum class Sm { kH200 = 132, kGb300 = 152 };
const char* text = "int kText = 152;";
int f() { return g(152) + x[152]; }
if (sms == 152) {}
#define WITH_NAME (GPCS * 19)
"""


def test_constants_of_a_header_are_found_and_nothing_else() -> None:
    found = {c.name: (c.value, c.line) for c in constants(CPP)}
    assert found == {
        "MEGA_RESIDENT_BLOCKS": (152, 4),
        "kResidentBlocks": (152, 5),
        "kBraced": (152, 6),
        "kH200": (132, 7),
        "kGb300": (152, 7),
    }
    for constant in constants(CPP):
        assert evaluate(CPP[constant.start : constant.end].decode()) == constant.value


def test_a_launch_over_several_lines_is_seen() -> None:
    assert launches(b"int x;\nstep<<<dim3(152),\n   256>>>(x);\n// step<<<152, 1>>>()\n", 152) == [2]


@given(st.binary(max_size=200))
def test_blanking_moves_no_byte(content: bytes) -> None:
    out = blanked(content)
    assert len(out) == len(content)
    assert [i for i, b in enumerate(out) if b == 10] == [i for i, b in enumerate(content) if b == 10]


@pytest.mark.parametrize(
    ("path", "glob", "fits"),
    [
        ("a/b/c.cu", "**/*.cu", True),
        ("c.cu", "**/*.cu", True),
        ("c.cuh", "**/*.cu", False),
        ("a/b.cu", "*.cu", False),
        ("tests/a/b.py", "tests/**", True),
        ("a/tests/b.py", "tests/**", False),
        ("a+b/x.h", "a+b/?.h", True),
    ],
)
def test_globs(path: str, glob: str, fits: bool) -> None:
    assert matches(path, (glob,)) is fits


@given(st.binary(max_size=80), st.lists(st.tuples(st.integers(0, 80), st.integers(0, 8), st.binary(max_size=6)), max_size=5))
def test_splices_change_only_their_bytes(content: bytes, wanted: list[tuple[int, int, bytes]]) -> None:
    changes = [Splice("f", a, a + n, content[a : a + n], new) for a, n, new in wanted if a + n <= len(content)]
    spans = sorted({(c.start, c.end) for c in changes})
    apart = all(left[1] <= right[0] for left, right in pairwise(spans)) and len(spans) == len(set(changes))
    try:
        out = splice(content, changes)
    except CannotPlace:
        assert not apart
        return
    assert len(out) == len(content) + sum(len(c.new) - (c.end - c.start) for c in set(changes))
    if changes:
        first, last = min(c.start for c in changes), max(c.end for c in changes)
        assert out.startswith(content[:first]) and out.endswith(content[last:])
    else:
        assert out == content


def test_a_splice_that_does_not_find_its_old_bytes_is_refused() -> None:
    with pytest.raises(CannotPlace, match="does not hold"):
        splice(b"x = 153", [Splice("f", 4, 7, b"152", b"148")])


@given(st.lists(st.sampled_from(list(State)), min_size=1, max_size=5))
def test_the_gravest_answer_wins_and_no_change_survives_it(states: list[State]) -> None:
    change = Splice("f", 0, 0, b"", b"x")
    merged = merge([Answer(state, str(state), splices=(change,) if state is State.APPLIES else ()) for state in states])
    order = [State.CONFLICT, State.AMBIGUOUS, State.APPLIES, State.ALREADY]
    assert merged.state is next(state for state in order if state in states)
    assert bool(merged.splices) == (merged.state is State.APPLIES)


def test_counts() -> None:
    assert Count(at_least=0, at_most=4).holds(0) and not Count(at_least=1, at_most=1).holds(2)
    assert re.search("at-most", _wrong_count())


def _wrong_count() -> str:
    with pytest.raises(ValueError) as caught:
        Count(at_least=2, at_most=1)
    return str(caught.value)
