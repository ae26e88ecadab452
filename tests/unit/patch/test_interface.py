"""Interface versions and entry points, read from a site-packages folder that holds the real contract file."""

import shutil
from pathlib import Path

import pytest
from plugin_standins import FEATURES, INIT, spec

from kit.patch.interface import CONTRACT_FILE, check_interface

ENTRY = "[sglang.srt.plugins]\nnvidia_megakernel = mega:register\n"


def install(site: Path, name: str, package: str, files: dict[str, str], entry: str = ENTRY) -> None:
    info = site / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry)
    for path, text in files.items():
        place = site / package / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)


@pytest.fixture
def site(tmp_path: Path, contract: Path) -> Path:
    shutil.copytree(contract / "sglang", tmp_path / "site" / "sglang")
    return tmp_path / "site"


def plugin(site: Path, version: str = "1", head: str = "") -> None:
    install(site, "sgl_nvidia_mega", "mega", {"__init__.py": INIT, "spec.py": spec(version=version, head=head)})


def codes(site: Path, allowed: str | None = None) -> list[str]:
    return [f.code for f in check_interface([site], allowed).failures]


def test_equal_versions_agree(site: Path) -> None:
    plugin(site)
    found = check_interface([site], None)
    assert found.agrees and (found.sglang, found.plugin) == (1, (1,))
    assert found.entry_points == ("sgl_nvidia_mega 1.0: mega:register",)


@pytest.mark.parametrize(
    ("version", "head"),
    [("VERSION", "VERSION = 1\n"), ("MEGAKERNEL_API_VERSION", "from sglang.kernels.plugin_kernels.nvidia.spec import *\n")],
)
def test_a_version_is_followed(site: Path, version: str, head: str) -> None:
    plugin(site, version, head)
    assert check_interface([site], None).plugin == (1,)


def test_the_seeds_first_trap_fails_with_its_consequence(site: Path) -> None:
    plugin(site, "2")
    (failure,) = check_interface([site], None).failures
    assert failure.code == "interface.mismatch"
    assert "interface version 1" in failure.expected and "version 2" in failure.found and "old speed" in failure.found


def test_sglang_moved_on_and_the_plugin_did_not(site: Path) -> None:
    plugin(site)
    file = site / CONTRACT_FILE
    file.write_text(file.read_text().replace("MEGAKERNEL_API_VERSION = 1", "MEGAKERNEL_API_VERSION = 2"))
    assert codes(site) == ["interface.mismatch"]


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("MEGAKERNEL_API_VERSION = 1", "MEGAKERNEL_API_VERSION = int(input())", "interface.sglang_not_constant"),
        ("MEGAKERNEL_API_VERSION = 1", "API = 1", "interface.sglang_no_version"),
        ("MEGAKERNEL_API_VERSION = 1", "MEGAKERNEL_API_VERSION = = 1", "interface.sglang_unreadable"),
    ],
)
def test_sglang_that_cannot_be_told(site: Path, old: str, new: str, code: str) -> None:
    plugin(site)
    file = site / CONTRACT_FILE
    file.write_text(file.read_text().replace(old, new, 1))
    assert codes(site) == [code]


def test_sglang_is_absent(site: Path) -> None:
    plugin(site)
    shutil.rmtree(site / "sglang")
    assert codes(site) == ["interface.sglang_missing"]


@pytest.mark.parametrize(
    ("version", "code"),
    [('int(os.environ["V"])', "interface.plugin_not_constant"), ("api", "interface.plugin_not_constant")],
)
def test_a_plugin_whose_version_is_no_constant(site: Path, version: str, code: str) -> None:
    plugin(site, version)
    assert codes(site) == [code]


def test_a_plugin_without_version_or_spec_or_files(site: Path) -> None:
    text = spec().replace("    api_version=1,\n", "")
    install(site, "sgl_nvidia_mega", "mega", {"__init__.py": INIT, "spec.py": text})
    assert codes(site) == ["interface.plugin_no_version"]
    (site / "mega/spec.py").write_text("SPEC = None\n")
    assert codes(site) == ["interface.plugin_no_spec"]
    (site / "mega/spec.py").write_text("SPEC = (\n")
    assert codes(site) == ["interface.plugin_unreadable"]
    shutil.rmtree(site / "mega")
    assert codes(site) == ["interface.plugin_missing"]


def test_the_entry_point_is_there_exactly_once(site: Path) -> None:
    assert codes(site) == ["interface.entry_missing"]
    plugin(site)
    install(site, "another", "another", {"__init__.py": ""}, ENTRY)
    (failure,) = check_interface([site], None).failures
    assert failure.code == "interface.entry_twice" and "another 1.0" in failure.found


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (None, []),
        ("", []),
        ("nvidia_megakernel", []),
        ("kit , nvidia_megakernel", []),
        ("kit", ["interface.not_allowed"]),
        ("nvidia_megakernels", ["interface.not_allowed"]),
        (",", ["interface.not_allowed"]),
    ],
)
def test_sglang_plugins_must_admit_it(site: Path, allowed: str | None, expected: list[str]) -> None:
    plugin(site)
    assert codes(site, allowed) == expected


def test_a_second_plugin_for_the_same_architecture_is_a_clash(site: Path) -> None:
    plugin(site)
    entry = "[sglang.srt.plugins]\nother_kernels = other:register\n"
    other = INIT.replace("mega.spec:SPEC", "other.spec:SPEC")
    install(site, "other", "other", {"__init__.py": other, "spec.py": spec(features=FEATURES)}, entry)
    (failure,) = check_interface([site], None).failures
    assert failure.code == "interface.architecture_twice" and "DeepseekV4ForCausalLM" in failure.where
    assert check_interface([site], "nvidia_megakernel").agrees, "a plugin that SGLang will not load is no clash"
