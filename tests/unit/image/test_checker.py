"""The checker asks SGLang's real contract, looks at files, and finds each fault by name."""

from __future__ import annotations

from collections.abc import Callable

from kit.image.proof import inside_failures
from tests.unit.image.conftest import Image

Make = Callable[..., Image]
PLUGIN = "plugin(expected, failures)"
PACKAGES = "python_packages(expected, c.tree(Path(expected['prefix'])), failures)"
SURROUNDINGS = "surroundings(expected, failures)"


def codes(image: Image, call: str) -> list[str]:
    return [failure.code for failure in image.ask(call)[1]]


def test_a_patched_plugin_is_told_with_its_fields(image: Make) -> None:
    one = image()
    one.plugin()
    found, failures = one.ask(PLUGIN)
    assert failures == []
    assert found["requires.resident_blocks"] == 148
    assert found["features"] == ["KV_OFFLOAD", "SPECULATIVE_DECODING"]
    assert (found["api_version"], found["sglang_api_version"]) == (1, 1)


def test_another_interface_version_fails_with_sglangs_own_words(image: Make) -> None:
    one = image()
    one.plugin(version=2)
    (told,) = one.ask(PLUGIN)[1]
    assert told.code == "interface.refused"
    assert "uses megakernel API version 2; this SGLang requires version 1" in told.found


def test_a_plugin_without_the_patch_fails_by_looking_at_the_code(image: Make) -> None:
    one = image()
    one.plugin(blocks=152, offload=False)
    failures = one.ask(PLUGIN)[1]
    assert {(f.where, f.found) for f in failures} == {
        ("the plugin's requires.resident_blocks", "152"),
        ("the plugin's features", "['SPECULATIVE_DECODING']"),
    }


def test_no_plugin_and_two_of_them_fail(image: Make) -> None:
    one = image()
    assert codes(one, PLUGIN) == ["interface.entry_point"]
    one.plugin("mega")
    one.plugin("other")
    assert codes(one, PLUGIN) == ["interface.entry_point"]


def test_a_second_plugin_for_the_same_architecture_fails(image: Make) -> None:
    one = image()
    one.plugin("mega")
    one.plugin("other", name="another_megakernel")
    (told,) = one.ask(PLUGIN)[1]
    assert told.code == "interface.plugin_raises"
    assert "already registered" in told.found


def test_a_second_plugin_that_is_not_admitted_does_no_harm(image: Make) -> None:
    one = image()
    one.plugin("mega")
    one.plugin("other", name="another_megakernel")
    one.environment["SGLANG_PLUGINS"] = "nvidia_megakernel"
    assert codes(one, PLUGIN) == []


def test_an_allow_list_without_the_plugin_fails(image: Make) -> None:
    one = image()
    one.plugin()
    one.environment["SGLANG_PLUGINS"] = "something_else"
    assert "interface.not_allowed" in codes(one, PLUGIN)


def test_a_plugin_that_does_not_import_fails(image: Make) -> None:
    one = image()
    one.plugin()
    (one.site / "mega" / "spec.py").write_text("import nothing_of_that_name\n")
    (told,) = one.ask(PLUGIN)[1]
    assert "nothing_of_that_name" in told.found


def test_packages_as_locked_are_told(image: Make) -> None:
    one = image(packages={"some-thing": "2.0"})
    one.add("Some_Thing", {"some_thing.py": "x = 1\n"}, version="2.0")
    found, failures = one.ask(PACKAGES)
    assert failures == []
    assert found["some-thing"]["version"] == "2.0"


def test_each_way_in_which_packages_differ_is_found(image: Make) -> None:
    one = image(packages={"a": "1.0", "gone": "1.0"}, own=["mine"])
    one.add("a", {"a.py": "x = 1\n"}, version="1.1")
    one.add("uninvited", {"u.py": "x = 1\n"})
    assert sorted(codes(one, PACKAGES)) == ["image.package", "image.package", "image.package", "image.package_unknown"]


def test_a_changed_file_and_a_stray_one_are_found(image: Make) -> None:
    one = image(packages={"a": "1.0"})
    one.add("a", {"a.py": "x = 1\n", "b.py": "y = 1\n"})
    (one.site / "a.py").write_text("x = 2\n")
    (one.site / "b.py").unlink()
    (one.site / "sitecustomize.py").write_text("import os\n")
    failures = {f.code: f for f in one.ask(PACKAGES)[1]}
    assert set(failures) == {"image.file_changed", "image.file_unknown"}
    assert failures["image.file_changed"].found == "a.py, b.py"
    assert "sitecustomize.py" in failures["image.file_unknown"].found


def test_variables_that_falsify_are_found(image: Make) -> None:
    one = image(build_tools=["gcc", "cc", "g++", "c++", "ld", "as", "make", "clang", "cmake", "git", "pip", "pip3", "nvcc"])
    assert codes(one, SURROUNDINGS) == []
    one.environment |= {"SGLANG_SIMULATE_ACC_LEN": "3", "NCCL_NVLS_ENABLE": "0"}
    assert codes(one, SURROUNDINGS) == ["image.variable", "image.variable"]
    one.environment |= {"NCCL_NVLS_ENABLE": "1"}
    assert codes(one, SURROUNDINGS) == ["image.variable"]


def test_build_tools_and_a_wrong_user_are_found(image: Make) -> None:
    one = image(uid=4321)
    found = codes(one, SURROUNDINGS)
    assert "image.user" in found
    assert "image.build_tool" in found, "this machine has compilers"


def test_an_architecture_is_looked_for_in_the_compiled_code(image: Make) -> None:
    one = image(architectures={"mega": ["sm_103a"], "other": []})
    (one.site / "mega").mkdir()
    (one.site / "mega" / "kernels.so").write_bytes(b"\x7fELF...\x00sm_90a\x00...")
    found, failures = one.ask("compiled(expected, failures)")
    assert found == {"mega/kernels.so": ["sm_90a"]}
    (told,) = failures
    assert (told.code, told.where, told.expected, told.found) == ("image.architecture", "mega", "sm_103a", "sm_90a")
    (one.site / "mega" / "kernels.so").write_bytes(b"\x7fELF...\x00sm_103a\x00...")
    assert codes(one, "compiled(expected, failures)") == []


def test_only_the_checkers_own_lines_are_failures() -> None:
    line = 'b300kit-failure:{"code": "a.b", "where": "w", "expected": "e", "found": "f", "next": "n"}'
    assert [f.code for f in inside_failures(f"noise\nSTEP 6: {line}\n{line}\nb300kit-failure:not json\n")] == ["a.b"]
