"""The Dockerfile holds values and nothing else; what would falsify figures never gets into it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.image import load, render
from kit.image.context import TEMPLATE, preview
from kit.image.model import ImageLock, ImageSpec, Wheel


@pytest.fixture
def spec() -> ImageSpec:
    return load.load_spec(load.folder_of("sim"))


@pytest.fixture
def lock() -> ImageLock:
    return load.load_lock(load.folder_of("sim"))


def changed(spec: ImageSpec, **values: object) -> ImageSpec:
    return ImageSpec.model_validate({**spec.model_dump(), **values})


def test_the_template_has_values_and_no_logic() -> None:
    text = (load.images_dir() / TEMPLATE).read_text()
    assert "{%" not in text
    assert set(re.findall(r"{{ ?(.*?) ?}}", text)) == {
        *("base", "user", "uid", "prefix", "site_packages", "home", "environment", "labels"),
    }


@pytest.mark.parametrize("profile", ["sim", "b300"])
def test_every_profile_renders_to_the_same_instructions(profile: str) -> None:
    """One template: profiles differ in values, never in steps."""
    folder = load.folder_of(profile)
    text = preview(load.load_spec(folder), load.load_lock(folder))
    words = [line.split()[0] for line in text.splitlines() if line and not line.startswith("#")]
    assert words == [
        *("FROM", "COPY", "RUN", "FROM", "COPY", "COPY", "RUN", "FROM", "COPY", "COPY", "RUN"),
        *("FROM", "COPY", "COPY", "COPY", "ENV", "RUN", "LABEL", "USER", "WORKDIR", "ENTRYPOINT"),
    ]
    assert "{{" not in text


def test_the_user_is_not_root_and_annotations_tell_the_lock(spec: ImageSpec, lock: ImageLock) -> None:
    text = preview(spec, lock)
    assert "\nUSER 10001:10001\n" in text
    assert f'org.b300kit.lock-sha256="{render.lock_sha256(lock)}"' in text
    assert 'org.opencontainers.image.version="0.5.23"' in text


@pytest.mark.parametrize(
    ("name", "value"), [("SGLANG_SIMULATE_ACC_LEN", "3"), ("SGLANG_SIMULATE_ACC_LEN", "0"), ("NCCL_NVLS_ENABLE", "0")]
)
def test_a_forbidden_variable_is_refused_by_name(spec: ImageSpec, name: str, value: str) -> None:
    with pytest.raises(KitError) as caught:
        render.check_spec(changed(spec, environment={name: value}))
    assert caught.value.exit_code == ExitCode.USAGE
    assert [f.where for f in caught.value.failures] == [f"image.yml environment.{name}"]


def test_a_variable_that_hides_nothing_is_taken(spec: ImageSpec) -> None:
    render.check_spec(changed(spec, environment={"NCCL_NVLS_ENABLE": "1"}))


def test_stand_ins_in_an_image_that_is_not_simulated_are_refused(spec: ImageSpec) -> None:
    with pytest.raises(KitError, match="stand-ins exactly when simulated"):
        render.check_spec(changed(spec, simulated=False))


@pytest.mark.parametrize(
    ("value", "code"),
    [
        ("sm148", "slots.opt_in_alone"),
        ("sim01,sim01", "slots.duplicate"),
        ("sim01,nonsense", "slots.unknown"),
        ("sim01", "slots.defaults_dropped"),
    ],
)
def test_a_slot_list_that_would_run_stock_code_is_refused(spec: ImageSpec, lock: ImageLock, value: str, code: str) -> None:
    with pytest.raises(KitError) as caught:
        preview(changed(spec, environment={"SGLANG_NVIDIA_MEGAKERNEL_SLOTS": value}), lock)
    assert code in [f.code for f in caught.value.failures]


def test_a_slot_list_with_spaces_is_refused_where_it_is_declared(spec: ImageSpec) -> None:
    with pytest.raises(ValueError, match="SGLANG_NVIDIA_MEGAKERNEL_SLOTS"):
        changed(spec, environment={"SGLANG_NVIDIA_MEGAKERNEL_SLOTS": "sim01, sim02"})


@pytest.mark.parametrize("value", ['x"; RUN rm -rf /', "$(id)", "a b", "${HOME}", "a\nRUN id"])
def test_a_value_that_a_dockerfile_would_expand_is_refused(spec: ImageSpec, value: str) -> None:
    with pytest.raises(ValueError, match="environment"):
        changed(spec, environment={"X": value})


def test_requirements_hold_a_hash_each_and_never_an_unresolved_package() -> None:
    wheel = Wheel(version="1.0", file="a-1.0-py3-none-any.whl", sha256="0" * 64)
    assert render.requirements({"b": None, "a": wheel}) == f"a==1.0 --hash=sha256:{'0' * 64}\n# b: unresolved\n"


def test_the_checker_is_told_what_the_patches_promise(spec: ImageSpec, lock: ImageLock) -> None:
    from kit.image.context import expectations

    told = expectations(spec, lock, ("b", "a"))
    assert told["plugin"]["fields"] == {"requires.resident_blocks": 148, "features": ["KV_OFFLOAD"]}
    assert told["own"] == ["a", "b"]
    assert told["forbidden"] == {"SGLANG_SIMULATE_ACC_LEN": None, "NCCL_NVLS_ENABLE": "0"}
    assert len(told["slots"]["active"]) == 39


def test_no_profile_names_a_secret(tmp_path: Path) -> None:
    from kit.record.guard import secrets_in

    for profile in ("sim", "b300"):
        folder = load.folder_of(profile)
        assert secrets_in(preview(load.load_spec(folder), load.load_lock(folder))) == ()


def test_the_upstream_route_sets_the_defaults_and_the_opt_in(spec: ImageSpec, lock: ImageLock) -> None:
    """The variable replaces the plugin's defaults, so all of them are in the image's own list."""
    slots = lock.plugin.slots
    assert slots is not None
    knows = slots.model_copy(update={"known": (*slots.known, "sm148")})
    other = lock.model_copy(update={"plugin": lock.plugin.model_copy(update={"slots": knows})})
    upstream = changed(spec, plugin={**spec.plugin.model_dump(), "route": "upstream"})
    text = preview(upstream, other)
    listed = re.findall(r'SGLANG_NVIDIA_MEGAKERNEL_SLOTS="([^"]*)"', text)
    assert listed == [",".join([*slots.defaults, "sm148"])]
    assert len(listed[0].split(",")) == 40
    with pytest.raises(KitError, match=r"slots\.no_opt_in"):
        preview(upstream, lock)
