"""A fleet folder to break: the shipped example as a host."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kit import paths
from kit.errors import ExitCode, Failure, KitError
from kit.spec.load import load_fleet

SHIPPED = paths.ROOT / "fleet"


def example_fleet(folder: Path) -> Path:
    """The shipped fleet with its example as a host, in a group."""
    (folder / "hosts").mkdir(parents=True)
    for name in ("fleet.yml", "lock.yml"):
        shutil.copy(SHIPPED / name, folder / name)
    shutil.copy(SHIPPED / "examples/example.yml", folder / "hosts/example.yml")
    text = (folder / "fleet.yml").read_text()
    assert "groups: {}" in text
    (folder / "fleet.yml").write_text(text.replace("groups: {}", "groups:\n  b300: [example]"))
    return folder


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    """A fleet folder of one host."""
    return example_fleet(tmp_path / "fleet")


Edit = Callable[..., None]


@pytest.fixture
def edit(fleet: Path) -> Edit:
    """Replace text in a file of the fleet; the text must be there, so that no test passes by changing nothing."""

    def change(*pairs: tuple[str, str], file: str = "hosts/example.yml") -> None:
        path = fleet / file
        text = path.read_text()
        for old, new in pairs:
            assert old in text, old
            text = text.replace(old, new, 1)
        path.write_text(text)

    return change


def failures_of(folder: Path) -> list[Failure]:
    """What loading says; the fleet must not load."""
    with pytest.raises(KitError) as caught:
        load_fleet(folder)
    assert caught.value.exit_code is ExitCode.USAGE
    return caught.value.failures
