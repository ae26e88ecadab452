"""``--host``."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.spec.load import load_fleet
from kit.spec.model import Fleet
from kit.spec.select import groups, select


@pytest.fixture
def fleets(fleet: Path) -> list[Fleet]:
    """Hosts example, second and third; groups b300 (example, second) and empty."""
    text = (fleet / "hosts/example.yml").read_text()
    for number, name in enumerate(("second", "third"), 11):
        changed = text.replace("name: example", f"name: {name}").replace("192.0.2.10", f"192.0.2.{number}")
        (fleet / f"hosts/{name}.yml").write_text(changed)
    file = fleet / "fleet.yml"
    file.write_text(file.read_text().replace("[example]", "[example, second]\n  empty: []"))
    return [load_fleet(fleet)]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ("third", ["third"]),
        ("third,example", ["third", "example"]),
        ("b300", ["example", "second"]),
        ("second, b300 ,second", ["second", "example"]),
        ("third,all", ["third", "example", "second"]),
        (",third,", ["third"]),
    ],
)
def test_names_groups_and_all_each_host_once(fleets: list[Fleet], expression: str, names: list[str]) -> None:
    assert [target.name for target in select(fleets, expression)] == names


def test_a_target_knows_its_file(fleets: list[Fleet]) -> None:
    [target] = select(fleets, "third")
    assert target.source == Path(fleets[0].directory) / "hosts/third.yml"
    assert target.source.is_file()


def test_every_unknown_name_is_told_with_a_near_one(fleets: list[Fleet]) -> None:
    with pytest.raises(KitError) as caught:
        select(fleets, "exampel,third,b30")
    assert caught.value.exit_code is ExitCode.USAGE
    assert [failure.next for failure in caught.value.failures] == ["did you mean 'example'?", "did you mean 'b300'?"]


@pytest.mark.parametrize("expression", ["", " , ", "empty"])
def test_nothing_selected_is_an_error_not_a_success(fleets: list[Fleet], expression: str) -> None:
    with pytest.raises(KitError) as caught:
        select(fleets, expression)
    assert caught.value.failures[0].code == "cli.no_host"


def test_one_group_in_two_fleets_is_their_union(fleets: list[Fleet]) -> None:
    other = fleets[0].model_copy(update={"file": fleets[0].file.model_copy(update={"groups": {"b300": ("third",)}})})
    assert groups([fleets[0], other])["b300"] == ("example", "second", "third")
