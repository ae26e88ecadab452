"""Whatever a plugin's source looks like: one of four states, never a crash, and what is changed is only what was declared."""

import re
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from plugin_standins import AMBIGUOUS, CONFLICT, SHAPES, write

from kit.patch.engine import judge
from kit.patch.load import load_series
from kit.patch.model import Meaning, PythonArgument, Series
from kit.patch.package import Package
from kit.patch.python_edits import PythonEdits
from kit.patch.report import State
from kit.patch.tree import Tree
from kit.paths import ROOT

SERIES = load_series(ROOT / "patches" / "sgl-nvidia-mega" / "sglang-pin-2026-10-28")
TEXTS = sorted({content for shape in SHAPES.values() for path, content in shape.files.items() if path == "mega/spec.py"}, key=str)
KINDS = ["drop", "double", "insert", "cut"]
LINES = sorted({line for text in TEXTS if isinstance(text, str) for line in text.splitlines(keepends=True)})
SLOW = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def on(tree: Tree, files: dict[str, bytes]) -> Tree:
    return tree.with_edits(files)


@SLOW
@given(
    start=st.sampled_from([t for t in TEXTS if isinstance(t, str)]),
    changes=st.lists(
        st.tuples(st.sampled_from(["drop", "double", "insert", "cut"]), st.integers(0, 40), st.sampled_from(LINES)), max_size=4
    ),
)
def test_any_source_gets_one_of_four_states(tmp_path: Path, start: str, changes: list[tuple[str, int, str]]) -> None:
    lines = start.splitlines(keepends=True)
    for kind, at, line in changes:
        at = min(at, len(lines) - 1) if lines else 0
        if kind == "drop" and lines:
            del lines[at]
        elif kind == "double" and lines:
            lines.insert(at, lines[at])
        elif kind == "insert":
            lines.insert(at, line)
        elif lines:
            lines[at] = lines[at][: len(lines[at]) // 2]
    folder = tmp_path / "tree"
    if not folder.exists():
        write(SHAPES["literal"], folder)
    tree = on(Tree(folder, SERIES.declared.leave_out), {"mega/spec.py": "".join(lines).encode()})
    results, edited = judge(SERIES, tree)
    assert len(results) == len(SERIES.patches)
    for result in results:
        assert result.reason
        if result.state in (CONFLICT, AMBIGUOUS):
            assert result.next
        if result.state is State.APPLIES:
            assert result.sites
    changed = {path for path in tree.files if tree.read(path) != edited.read(path)}
    assert changed <= {"mega/spec.py"}
    if changed:
        _only_declared(tree.read("mega/spec.py").decode(), edited.read("mega/spec.py").decode())


def _only_declared(before: str, after: str) -> None:
    """Taking the two declared changes back gives the source again."""
    plain = re.sub(r"152|0x98|4 \* 38|GPCS \* PER_GPC|\b148\b", "#", before)
    undone = re.sub(r"152|0x98|4 \* 38|GPCS \* PER_GPC|\b148\b", "#", after)
    shorter = sorted(set(re.findall(r"[\w.]+", undone)) - set(re.findall(r"[\w.]+", plain)))
    assert all(word.endswith("KV_OFFLOAD") or word == "frozenset" for word in shorter), shorter


NAMES = st.sampled_from(["A", "B", "C", "D", "resident_blocks", "N2"])


@st.composite
def chains(draw: st.DrawFn) -> tuple[dict[str, bytes], int]:
    """Modules that hand one integer on through names, imports and arithmetic; and the integer."""
    value = draw(st.integers(1, 400))
    files: dict[str, str] = {}
    left, right = draw(st.integers(1, 20)), draw(st.integers(-50, 50))
    forms = [
        f"{value}",
        f"({value})",
        f"{hex(value)}",
        f"{value - right} + {right}" if right >= 0 else f"{value - right} - {-right}",
    ]
    if value % left == 0:
        forms.append(f"{left} * {value // left}")
    expression = draw(st.sampled_from(forms))
    name, module = draw(NAMES), "m0"
    files["mega/m0.py"] = f"{name} = {expression}\n"
    for index in range(1, draw(st.integers(1, 4))):
        new, way = draw(NAMES), draw(st.sampled_from(["from", "as", "attr", "abs", "star", "name"]))
        text = {
            "from": f"from .{module} import {name}\n",
            "as": f"from .{module} import {name} as {new}\n",
            "attr": f"from . import {module}\n{new} = {module}.{name}\n",
            "abs": f"import mega.{module}\n{new} = mega.{module}.{name}\n",
            "star": f"from mega.{module} import *\n",
            "name": f"from .{module} import {name} as _x\n{new} = _x\n",
        }[way]
        name = name if way in ("from", "star") else new
        module = f"m{index}"
        files[f"mega/{module}.py"] = text
    files["mega/spec.py"] = (
        "from sglang.kernels.plugin_kernels.nvidia.spec import Requirements\n"
        f"from .{module} import {name} as last\nR = Requirements(frozenset(), frozenset(), resident_blocks=last)\n"
    )
    return {path: text.encode() for path, text in files.items()}, value


@SLOW
@given(chains())
def test_a_chain_is_followed_to_its_value_as_python_would(tmp_path_factory, chain: tuple[dict[str, bytes], int]) -> None:
    files, value = chain
    folder = write({"mega/__init__.py": "", **files}, tmp_path_factory.mktemp("chain"))
    edit = PythonArgument(kind="python-argument", call="Requirements", argument="resident_blocks", old=value, new=value + 1000)
    answer = PythonEdits(Package(Tree(folder))).argument(edit.model_copy(update={"meaning": Meaning(same=("*",))}))
    assert answer.state is State.APPLIES, answer
    (change,) = answer.splices
    assert change.path == "mega/m0.py", "the literal itself, however far away"


def test_a_declared_stranger_is_left_alone(tmp_path: Path) -> None:
    """A person looked at the candidate and wrote down what it is: the patch applies and the constant stays."""
    first, second = SERIES.patches
    edit = first.edits[0]
    known = edit.model_copy(update={"meaning": edit.meaning.model_copy(update={"unrelated": ("csrc/*.cuh:kStageBytes",)})})
    patch = first.model_copy(update={"edits": (known, *first.edits[1:])})
    series: Series = SERIES.model_copy(update={"patches": (patch, second)})
    tree = Tree(write(SHAPES["header_other_meaning"], tmp_path / "s"), series.declared.leave_out)
    results, edited = judge(series, tree)
    assert [r.state for r in results] == [State.APPLIES, State.APPLIES]
    assert b"kStageBytes = 152" in edited.read("csrc/mega.cuh")


TEXT_EDIT = """\
Description: The launcher script starts as many blocks.
Origin: this test
Forwarded: nowhere
Applies-To: {project: sgl-nvidia-mega, interface: [1], version: any}
Remove-When: the test is removed
edits:
  - kind: text-replace
    files: ["*.sh"]
    anchor: '^export BLOCKS=(?P<value>\\d+)$'
    old: "152"
    new: "148"
    count: {at-least: 1, at-most: 1}
"""


def test_an_anchored_line_is_checked_and_counted(tmp_path: Path) -> None:
    folder = tmp_path / "p" / "v"
    folder.mkdir(parents=True)
    base = (ROOT / "patches/sgl-nvidia-mega/sglang-pin-2026-10-28/series.yml").read_text()
    listed = base.split("patches:")[0] + "patches:\n  - 0001-launcher\n"
    (folder / "series.yml").write_text(listed)
    (folder / "0001-launcher.yml").write_text(TEXT_EDIT)
    series = load_series(folder)
    tree = Tree(write({**SHAPES["literal"].tree(), "run.sh": "export BLOCKS=152\n"}, tmp_path / "s"))
    cases = {
        "export BLOCKS=152\n": State.APPLIES,
        "export BLOCKS=148\n": State.ALREADY,
        "export BLOCKS=160\n": State.CONFLICT,
        "export SMS=152\n": State.CONFLICT,
        "export BLOCKS=152\nexport BLOCKS=152\n": State.AMBIGUOUS,
    }
    for text, state in cases.items():
        (result,), edited = judge(series, on(tree, {"run.sh": text.encode()}))
        assert result.state is state, (text, result)
        assert edited.read("run.sh").decode() == (text.replace("152", "148") if state is State.APPLIES else text)
