"""The SGLang plugin: its settings anywhere; loading, switches, limits, refusals and numbers in the real SGLang on the CPU."""

import json
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from kernels import wheel
from kernels.plugin.settings import LIMITS, parse
from kit import paths

PYTHON = paths.cache_dir() / "serve-venv" / "bin" / "python"
INSIDE = Path(__file__).with_name("plugin_inside.py")


@pytest.mark.parametrize(
    ("text", "switches"),
    [
        ("", {}),
        (" off ", {}),
        ("all", {"stats": 31, "wo_a": 8}),
        ("stats", {"stats": 31}),
        ("stats=8, wo_a=1", {"stats": 8, "wo_a": 1}),
    ],
)
def test_switches_and_width_limits(text, switches):
    assert parse(text) == (switches, [])


def test_everything_that_is_wrong_is_said_at_once():
    _, wrong = parse("stats=0,gate,wo_a=9,stats,wo_a=x")
    assert len(wrong) == 5 and "found 'gate'" in wrong[1] and "expected 1 to 8 rows, found '9'" in wrong[2]
    assert all(default <= most for default, most in LIMITS.values())


def test_the_wheel_names_the_plugin(tmp_path):
    with zipfile.ZipFile(wheel.make(None, tmp_path)) as archive:
        names = archive.namelist()
        entry = archive.read(f"{wheel.NAME}-{wheel.VERSION}.dist-info/entry_points.txt").decode()
    assert entry == "[sglang.srt.plugins]\nb300kit_kernels = b300kit_kernels.plugin:register\n"
    assert "b300kit_kernels/plugin/hooks.py" in names and "b300kit_kernels/oproj/reference.py" in names


def in_engine(tmp_path, setting, rows=2, on_cpu=True, change=None):
    """What plugin_inside.py printed, with the wheel unpacked beside it (``change`` edits that copy)."""
    if not PYTHON.is_file():
        pytest.fail(f"no engine for the tests: make serve-venv (looked for {PYTHON})")
    site = tmp_path / "site"
    with zipfile.ZipFile(wheel.make(None, tmp_path)) as archive:
        archive.extractall(site)
    if change:
        change(site)
    environment = {
        **os.environ, "PYTHONPATH": str(site), "SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "B300KIT_KERNELS": setting,
        "B300KIT_KERNELS_ON_CPU": "1" if on_cpu else "",
    }  # fmt: skip
    done = subprocess.run([PYTHON, INSIDE, str(rows)], env=environment, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.serve
def test_swapped_operators_in_the_real_engine(tmp_path):
    found = in_engine(tmp_path, "all")
    assert found["calls"] == {"wo_a": 1, "stats": 1}
    assert any("active (stats up to 31 rows, wo_a up to 8 rows)" in m for m in found["messages"])
    assert found["wo_a"]["shape"] == [2, 2, 1024] and found["wo_a"]["error"] < 2e-3
    assert found["stats"]["shapes"] == [[2, 4], [2, 4], [2, 4, 4]] and found["stats"]["columns"] < 2e-6


@pytest.mark.serve
def test_off_and_above_the_limit_sglang_s_own_is_used(tmp_path):
    found = in_engine(tmp_path, "")
    assert found["calls"] == {} and found["wo_a"]["error"] < 2e-3 and not any("active" in m for m in found["messages"])
    found = in_engine(tmp_path, "wo_a=1")
    assert found["calls"] == {"wo_a: fallback": 1} and found["wo_a"]["error"] < 2e-3
    assert any("wo_a: SGLang's own is used: more than 1 rows" in m for m in found["messages"])


@pytest.mark.serve
def test_refusals_are_loud_and_leave_the_engine_as_it_is(tmp_path):
    def unknown(site):
        path = site / "b300kit_kernels" / "plugin" / "settings.py"
        path.write_text(path.read_text().replace('VERSIONS = ("0.5.23",)', 'VERSIONS = ("0.5.99",)'))

    found = in_engine(tmp_path, "all", change=unknown)
    assert found["calls"] == {} and any("sglang 0.5.23: expected one of 0.5.99" in m for m in found["messages"])
    found = in_engine(tmp_path, "wo_b")
    assert found["calls"] == {} and any("found 'wo_b'" in m for m in found["messages"])
    found = in_engine(tmp_path, "wo_a", on_cpu=False)
    assert found["calls"] == {} and any("no kernel library" in m for m in found["messages"])
