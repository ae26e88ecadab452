"""The build's commands, the wheel's contents, and the results' form: no compiler, no GPU, no torch."""

import json
import zipfile
from pathlib import Path

import pytest

from kernels import build, wheel

RESULTS = Path(build.HERE) / "results"


def test_each_source_is_compiled_for_each_architecture_then_linked():
    steps = build.commands(Path("/x/nvcc"), ("sm_90a", "sm_103a"), Path("/out"))
    assert len(steps) == len(build.SOURCES) + 1
    for step, source in zip(steps, build.SOURCES, strict=False):
        assert step.argv[0] == "/x/nvcc" and "-gencode=arch=compute_90a,code=sm_90a" in step.argv
        assert "-gencode=arch=compute_103a,code=sm_103a" in step.argv and str(build.HERE / source) in step.argv
    assert steps[-1].output.name == build.LIBRARY and all(str(s.output) in steps[-1].argv for s in steps[:-1])


def test_every_source_exists_and_every_kernel_folder_is_built():
    assert all((build.HERE / name).is_file() for name in (*build.SOURCES, *build.HEADERS))
    assert {str(p.relative_to(build.HERE)) for p in build.HERE.glob("*/*.cu") if p.parent.name != "peers"} == set(build.SOURCES)


@pytest.mark.parametrize("text", ["", "sm_80", "sm_90a,sm_100a"])
def test_unknown_architectures_are_refused(text):
    with pytest.raises(build.BuildError, match="--arch: expected some of sm_90a, sm_103a"):
        build.architectures(text)


def test_missing_architecture_in_a_library_is_seen(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"...sm_90a...")
    assert build.contained(library, ("sm_90a", "sm_103a")) == {"sm_90a": True, "sm_103a": False}


def test_wheel_holds_operators_and_library_and_is_reproducible(tmp_path):
    library = tmp_path / "lib.so"
    library.write_bytes(b"library")
    first = wheel.make(library, tmp_path / "a").read_bytes()
    path = wheel.make(library, tmp_path / "b")
    assert path.read_bytes() == first
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert archive.read(f"b300kit_kernels/lib/{build.LIBRARY}") == b"library"
        record = archive.read("b300kit_kernels-0.1.0.dist-info/RECORD").decode()
    assert "b300kit_kernels/boundary/ops.py" in names and "b300kit_kernels/launch.py" in names
    assert not [name for name in names if "test" in name or "bench" in name or "peers" in name]
    assert all(name in record for name in names)


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_results_say_where_they_are_from_and_have_no_zero_or_nan(path):
    document = json.loads(path.read_text())
    assert {"date", "name", "driver_version", "torch", "triton", "method"} <= set(document["provenance"])
    assert document["figures"] and document["tests"]
    for figure in document["figures"]:
        measured = figure["us"] is not None
        assert (
            figure["us"] > 0 and figure["low"] <= figure["us"] <= figure["high"] if measured else "not measured" in figure["note"]
        )
