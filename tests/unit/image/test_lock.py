"""What moved is shown, what could not be asked is kept or null, and nothing is built from a null."""

from __future__ import annotations

import pytest

from kit.errors import ExitCode, KitError
from kit.image import flow, load, lock
from kit.image.model import ImageLock, LockedBase, Wheel

WHEEL = Wheel(version="1.0", file="a-1.0-py3-none-any.whl", sha256="1" * 64)


@pytest.fixture
def locked() -> ImageLock:
    return load.load_lock(load.folder_of("sim"))


def test_what_moved_is_named_with_both_values(locked: ImageLock) -> None:
    other = locked.model_copy(update={"packages": {**locked.packages, "torch": WHEEL}})
    lines = lock.moved(locked, other)
    assert "packages.torch.version: 2.13.0+cpu -> 1.0" in lines
    assert {line.partition(":")[0] for line in lines} == {f"packages.torch.{key}" for key in ("version", "file", "sha256")}
    assert lock.moved(locked, locked) == []


def test_a_first_lock_moves_from_absent(locked: ImageLock) -> None:
    assert f"base.digest: absent -> {locked.base.digest}" in lock.moved(None, locked)


def test_what_nobody_could_ask_keeps_its_old_value(locked: ImageLock) -> None:
    blind = locked.model_copy(
        update={
            "base": LockedBase(digest=None, packages=dict.fromkeys(["python3"])),
            "packages": dict.fromkeys(locked.packages),
        }
    )
    kept = lock.keep_known(locked, blind)
    assert kept.base == locked.base
    assert kept.packages == locked.packages
    assert lock.keep_known(None, blind) == blind


def test_a_package_that_is_new_stays_null_and_is_named(locked: ImageLock) -> None:
    blind = locked.model_copy(update={"packages": dict.fromkeys([*locked.packages, "new-one"])})
    assert lock.keep_known(locked, blind).unresolved() == ("packages.new-one",)


def test_the_committed_lock_is_what_this_checkout_asks_for() -> None:
    """When this fails after a change to patches, stand-ins or requirements: `invoke image.lock --profile NAME --own`."""
    for profile in ("sim", "b300"):
        folder = load.folder_of(profile)
        assert lock.stale(folder, load.load_spec(folder), load.load_lock(folder)) == []


def test_the_simulated_image_is_resolved_whole(locked: ImageLock) -> None:
    assert locked.unresolved() == ()


def test_a_version_that_is_asked_for_and_not_locked_is_stale(locked: ImageLock) -> None:
    folder = load.folder_of("sim")
    other = locked.model_copy(update={"packages": {**locked.packages, "torch": WHEEL}})
    before, after = (lock.stale(folder, load.load_spec(folder), one) for one in (locked, other))
    (told,) = [failure for failure in after if failure not in before]
    assert (told.code, told.where, told.found) == ("image.lock_stale", "sim/lock.yml packages.torch", "1.0")


def test_an_unresolved_lock_builds_nothing_and_says_what_is_null() -> None:
    with pytest.raises(KitError) as caught:
        flow.build("b300", False, False, "buildah", False)
    assert caught.value.exit_code == ExitCode.USAGE
    (told,) = caught.value.failures
    assert told.code == "image.unresolved"
    assert "base.digest" in told.where
    assert "image.lock --profile b300" in told.next


def test_a_dry_run_of_an_unresolved_image_shows_the_recipe_and_says_that_it_would_refuse() -> None:
    outcome = flow.build("b300", False, True, "buildah", False)
    assert outcome.exit_code == ExitCode.OK
    assert "unresolved" in str(outcome.result["base"])
    assert str(outcome.result["would"]).startswith("refuse")
    assert any("base.digest" in line for line in outcome.skipped)


def test_a_lock_in_the_file_is_read_back_as_it_was(locked: ImageLock, tmp_path) -> None:
    load.write_lock(tmp_path, locked)
    assert load.load_lock(tmp_path) == locked


@pytest.mark.parametrize(
    ("line", "expected"),
    [("torch", "name==version"), ("torch>=2", "name==version"), ("Torch==2", "lower case"), ("a==1\na==2", "once")],
)
def test_a_requirement_that_is_not_exact_is_refused_with_its_line(tmp_path, line: str, expected: str) -> None:
    path = tmp_path / "requirements.txt"
    path.write_text(f"# comment\n{line}\n")
    with pytest.raises(KitError, match=expected) as caught:
        load.load_requirements(path)
    assert caught.value.failures[0].where.startswith(f"{path}:")


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(KitError, match="b300, sim"):
        load.folder_of("b200")
