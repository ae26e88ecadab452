"""Routes and slot lists: what would run stock code silently is refused, with the reason."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plugin_standins import SHAPES, write

from kit.patch.tree import Tree
from kit.slots.compose import compose
from kit.slots.derive import derive
from kit.slots.load import load_declared
from kit.slots.model import Composed, Provenance, Refused, Route, Slots, SlotsDeclared

VARIABLE = "SGLANG_NVIDIA_MEGAKERNEL_SLOTS"
NAMES = tuple(f"slot{n:02}" for n in range(39))
DECLARED = SlotsDeclared(variable=VARIABLE, separator=",", opt_in="sm148", expected_defaults=39)
SLOTS = Slots(
    variable=VARIABLE,
    separator=",",
    defaults=NAMES,
    known=(*NAMES, "sm148", "experimental"),
    provenance=Provenance(tree_sha256="0" * 64, file="mega/slots.py", line=3),
)
FULL = ",".join((*NAMES, "sm148"))


def codes(answer: Composed | Refused) -> list[str]:
    return [f.code for f in answer.failures] if isinstance(answer, Refused) else []


def test_the_upstream_route_is_the_defaults_and_the_opt_in() -> None:
    answer = compose(Route.UPSTREAM, DECLARED, SLOTS)
    assert isinstance(answer, Composed)
    assert answer.environment == {VARIABLE: FULL} and len(answer.slots) == 40


def test_the_patch_route_leaves_the_variable_alone() -> None:
    answer = compose(Route.PATCH, DECLARED, SLOTS)
    assert isinstance(answer, Composed) and answer.environment == {} and answer.slots == NAMES


@pytest.mark.parametrize(
    ("route", "given", "expected"),
    [
        (Route.UPSTREAM, "sm148", ["slots.opt_in_alone"]),
        (Route.UPSTREAM, "", ["slots.empty"]),
        (Route.UPSTREAM, "  ", ["slots.empty"]),
        (Route.UPSTREAM, FULL.replace("slot07,", ""), ["slots.default_missing"]),
        (Route.UPSTREAM, ",".join(NAMES), ["slots.no_opt_in"]),
        (Route.UPSTREAM, FULL + ",slot03", ["slots.duplicate"]),
        (Route.UPSTREAM, FULL + ",slot99", ["slots.unknown"]),
        (Route.UPSTREAM, FULL + ",SM148", ["slots.unknown"]),
        (Route.UPSTREAM, FULL.replace(",", ", "), ["slots.space"]),
        (Route.UPSTREAM, FULL + "\n", ["slots.space"]),
        (Route.UPSTREAM, FULL + ",", ["slots.empty_name"]),
        (Route.UPSTREAM, FULL.replace(",", ";"), ["slots.unknown", "slots.default_missing", "slots.no_opt_in"]),
        (Route.PATCH, "slot01,slot02", ["slots.defaults_dropped"]),
        (Route.PATCH, "sm148", ["slots.opt_in_alone", "slots.two_routes"]),
        (Route.PATCH, FULL, ["slots.two_routes"]),
        (Route.PATCH, "", ["slots.empty"]),
    ],
)
def test_a_list_that_would_run_stock_code_is_refused(route: Route, given: str, expected: list[str]) -> None:
    answer = compose(route, DECLARED, SLOTS, given)
    assert codes(answer) == expected
    assert isinstance(answer, Refused) and all(f.next and f.found for f in answer.failures)


def test_without_the_plugins_defaults_only_an_unset_variable_is_safe() -> None:
    assert isinstance(compose(Route.PATCH, DECLARED, None), Composed)
    assert codes(compose(Route.PATCH, DECLARED, None, FULL)) == ["slots.unknown_defaults"]
    assert codes(compose(Route.UPSTREAM, DECLARED, None)) == ["slots.unknown_defaults"]


def test_the_second_trap_says_what_it_would_do() -> None:
    answer = compose(Route.UPSTREAM, DECLARED, SLOTS, "sm148")
    assert isinstance(answer, Refused) and "stock code on every step" in answer.failures[0].found


def test_more_than_the_defaults_is_kept_as_given() -> None:
    answer = compose(Route.UPSTREAM, DECLARED, SLOTS, FULL + ",experimental")
    assert isinstance(answer, Composed) and answer.environment[VARIABLE].endswith("sm148,experimental")
    answer = compose(Route.PATCH, DECLARED, SLOTS, ",".join(NAMES) + ",experimental")
    assert isinstance(answer, Composed) and answer.slots[-1] == "experimental"


@pytest.mark.parametrize(
    ("change", "route", "expected"),
    [
        ({"defaults": NAMES[:38]}, Route.UPSTREAM, ["slots.count"]),
        ({"defaults": NAMES[:38]}, Route.PATCH, []),
        ({"defaults": (*NAMES[:38], "slot00")}, Route.UPSTREAM, ["slots.duplicate"]),
        ({"known": NAMES}, Route.UPSTREAM, ["slots.no_opt_in"]),
        ({"known": NAMES}, Route.PATCH, []),
        ({"defaults": (*NAMES[:38], "sm148")}, Route.UPSTREAM, ["slots.opt_in_default"]),
    ],
)
def test_a_plugin_that_is_not_as_published_is_refused(change: dict, route: Route, expected: list[str]) -> None:
    assert codes(compose(route, DECLARED, SLOTS.model_copy(update=change))) == expected


@given(st.lists(st.sampled_from((*NAMES, "sm148", "experimental", "what", "")), max_size=60).map(",".join))
def test_whatever_is_composed_has_every_default_once(given_list: str) -> None:
    for route in Route:
        answer = compose(route, DECLARED, SLOTS, given_list)
        if isinstance(answer, Composed):
            assert set(NAMES) <= set(answer.slots) <= set(SLOTS.known)
            assert len(set(answer.slots)) == len(answer.slots)
            assert ("sm148" in answer.slots) is (route is Route.UPSTREAM)
        else:
            assert answer.failures


# Deriving the defaults.

LITERAL = "(" + ", ".join(f'"{name}"' for name in NAMES) + ")"
HEAD = f'import os\n\nVAR = "{VARIABLE}"\n'
SOURCES = {
    "get_join": f'{HEAD}DEFAULTS = {LITERAL}\nSLOTS = os.environ.get(VAR, ",".join(DEFAULTS)).split(",")\nEXTRA = ("sm148",)\n',
    "getenv_text": f'{HEAD}SLOTS = os.getenv("{VARIABLE}", "{",".join(NAMES)}").split(",")\n'
    'KNOWN = SLOTS + ["sm148"]\nOPT = ["sm148"]\n',
    "or": f"{HEAD}D = {LITERAL}\n\ndef slots():\n    raw = os.environ.get(VAR)\n"
    '    return raw.split(",") if raw else D\n\nif "sm148" in slots(): pass\n',
    "is_none": f"{HEAD}D = {LITERAL}\n\ndef slots():\n    raw = os.environ.get(VAR)\n"
    '    return D if raw is None else raw.split(",")\n\nif "sm148" in slots(): pass\n',
    "boolean": f'{HEAD}D = {LITERAL}\nSLOTS = os.environ.get(VAR) or ",".join(D)\nALL = frozenset(D) | {{"sm148"}}\n',
    "table": f"{HEAD}TABLE = {{name: 1 for name in ()}}\nD = {{{', '.join(f'{n!r}: None' for n in NAMES)}}}\n"
    'SLOTS = tuple(os.environ.get(VAR, ",".join(D)).split(","))\nALL = [*D, "sm148"]\n',
    "enum": f"{HEAD}import enum\n\nclass Slot(enum.Enum):\n"
    + "".join(f'    S{i} = "{name}"\n' for i, name in enumerate(NAMES))
    + 'SLOTS = os.environ.get(VAR, ",".join(Slot)).split(",")\nALL = ("sm148",)\n',
}


def tree(tmp_path: Path, source: str) -> Tree:
    return Tree(write({**SHAPES["literal"].tree(), "mega/slots.py": source}, tmp_path / "s"))


@pytest.mark.parametrize("name", sorted(SOURCES))
def test_defaults_are_read_where_the_variable_is(name: str, tmp_path: Path) -> None:
    found = derive(tree(tmp_path, SOURCES[name]), DECLARED)
    assert isinstance(found, Slots), found
    assert found.defaults == NAMES and "sm148" in found.known
    assert found.provenance.file == "mega/slots.py" and found.provenance.line > 0 and len(found.provenance.tree_sha256) == 64
    answer = compose(Route.UPSTREAM, DECLARED, found)
    assert isinstance(answer, Composed) and answer.environment[VARIABLE] == FULL


REFUSED = {
    "not_read": ("X = 1\n", "slots.not_read"),
    "built_in_a_loop": (f'{HEAD}SLOTS = os.environ.get(VAR, ",".join(f"s{{n}}" for n in range(39)))\n', "slots.not_derivable"),
    "no_default": (
        f"{HEAD}DEFAULT_SLOTS = {LITERAL}\nSLOTS = os.environ[VAR] if VAR in os.environ else pick()\n",
        "slots.not_derivable",
    ),
    "two_defaults": (f'{HEAD}A = os.environ.get(VAR, "a,b")\nB = os.environ.get(VAR, "a")\n', "slots.not_derivable"),
    "separator": (f'{HEAD}D = {LITERAL}\nSLOTS = os.environ.get(VAR, ":".join(D)).split(":")\n', "slots.separator"),
    "broken": (f"{HEAD}SLOTS = (\n", "slots.unreadable"),
    "changed": (
        f'{HEAD}D = ["a"]\nD.append("b")\nSLOTS = os.environ.get(VAR, ",".join(D)).split(",")\n',
        "slots.not_derivable",
    ),
}


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_defaults_that_cannot_be_told_are_refused(name: str, tmp_path: Path) -> None:
    source, code = REFUSED[name]
    found = derive(tree(tmp_path, source), DECLARED)
    assert isinstance(found, tuple) and [f.code for f in found] == [code]
    if name == "no_default":
        assert "mega/slots.py:4 DEFAULT_SLOTS" in found[0].found
        declared = DECLARED.model_copy(update={"defaults_at": "mega.slots:DEFAULT_SLOTS"})
        again = derive(tree(tmp_path / "again", source), declared)
        assert isinstance(again, Slots) and again.defaults == NAMES and again.provenance.line == 4


def test_a_docstring_that_mentions_the_opt_in_is_no_support(tmp_path: Path) -> None:
    source = f'"""Set sm148 on B300: "sm148"."""\n{SOURCES["get_join"]}'.replace('EXTRA = ("sm148",)\n', "")
    found = derive(tree(tmp_path, source), DECLARED)
    assert isinstance(found, Slots) and "sm148" not in found.known
    assert codes(compose(Route.UPSTREAM, DECLARED, found)) == ["slots.no_opt_in"]


def test_what_is_published_is_data(series: Path) -> None:
    declared = load_declared(series)
    assert (declared.variable, declared.opt_in, declared.expected_defaults) == (VARIABLE, "sm148", 39)
