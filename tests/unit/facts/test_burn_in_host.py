"""The burn-in's children against the simulated driver libraries; what is refused; and that nothing keeps running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from kit import paths
from kit.facts.host import bundle, burn_in
from kit.facts.host import nvml_api as api
from kit.facts.host.burn_gpu import GIB, figure
from kit.facts.host.burn_nccl import sum_of_ones
from kit.sim.hardware import profile as profiles
from kit.sim.hardware import stubs_build

FREE = {"joined": False, "engine_active": False, "marker": ""}
Hardware = Callable[..., dict[str, str]]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("libraries")
    stubs_build.build(folder)
    return folder


@pytest.fixture
def hardware(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hardware:
    """profile, further lines of facts -> the sources that children run: ours, with the simulated libraries' paths in them."""

    def make(profile: str, *lines: str) -> dict[str, str]:
        facts = tmp_path / "gpus.conf"
        # The first line of a key counts.
        facts.write_text("".join(f"{line}\n" for line in lines) + profiles.gpu_facts(profiles.load(profile)))
        sources = bundle.own_sources()
        settings = {"SIM_GPUS_FACTS": str(facts), "SIM_GPUS_STATE": str(tmp_path / "state")}
        for name in ("nvml_api", "cuda"):
            text = sources[f"{bundle.PACKAGE}.{name}"]
            for library in (api.LIBRARY, "libcuda.so.1"):
                text = text.replace(f'"{library}"', repr(str(libraries / library)))
            head = f"from __future__ import annotations\nimport os\nos.environ.update({settings!r})\n"
            sources[f"{bundle.PACKAGE}.{name}"] = text.replace("from __future__ import annotations\n", head, 1)
        monkeypatch.setattr(sys.modules["__main__"], "SOURCES", sources, raising=False)
        return sources

    return make


def test_a_healthy_memory_is_tested_whole_and_each_figure_is_the_profiles(hardware: Hardware) -> None:
    hardware("b300-4")
    found = burn_in._run("burn_memory", 60)
    assert list(found) == ["0000:1B:00.0", "0000:43:00.0", "0000:9B:00.0", "0000:C3:00.0"]
    for check in found.values():
        assert check["wrong_words"] == 0 and check["first_wrong_byte"] is None
        assert 0.9 * check["total_mib"] < check["tested_mib"] < check["total_mib"]
        assert [check[name]["gbps"] for name in ("filled", "compared", "copied")] == [7000.0] * 3
        assert check["sm_mhz_before"] == 345
    assert len({check["rounds"] for check in found.values()}) == 1


def test_one_bad_word_is_found_and_named(hardware: Hardware) -> None:
    hardware("hbm-fault")
    found = list(burn_in._run("burn_memory", 60).values())
    assert [check["wrong_words"] > 0 for check in found] == [False, False, True, False]
    assert found[2]["first_wrong_byte"] == 123456 << 20


def test_every_pair_is_measured_and_a_slow_gpu_shows(hardware: Hardware) -> None:
    hardware("slow-link")
    pairs = burn_in._run("burn_links", 60)
    gpus = [{"index": n, "pci_bus_id": f"00000000:{bus}:00.0"} for n, bus in enumerate(("1B", "43", "9B", "C3"))]
    links = burn_in._with_indices(pairs, gpus)
    assert [link["gpus"] for link in links] == [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]]
    assert [(link["there"]["gbps"], link["back"]["gbps"]) for link in links if 3 in link["gpus"]] == [(750.0, 48.0)] * 3
    assert all(link["peer_access"] and link["wrong_words"] == 0 for link in links)
    assert links[0]["both"]["gbps"] == 1500.0


def test_pairs_that_cannot_reach_each_other_are_said(hardware: Hardware) -> None:
    hardware("b300-4", "gpu.0.p2p 1")
    pairs = burn_in._run("burn_links", 60)
    assert [figures["peer_access"] for _, figures in pairs] == [False, False, False, True, True, True]


def test_a_fault_where_copies_land_is_wrong_words(hardware: Hardware) -> None:
    hardware("b300-4", f"gpu.1.hbm_fault_mib {GIB + GIB // 2 >> 20}")
    pairs = burn_in._run("burn_links", 60)
    assert [figures["wrong_words"] for _, figures in pairs] == [1, 0, 0, 1, 1, 0]


def test_one_gpu_has_no_pair(hardware: Hardware) -> None:
    hardware("b300-4", "system.count 1")
    assert burn_in._run("burn_links", 60) == {"unknown": "1 GPU: no pair"}


def test_nccl_over_all_gpus_with_its_settings(hardware: Hardware, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hardware("b300-4")
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    found = burn_in._run("burn_nccl", 60, [str(libraries / "libnccl.so.2")])
    assert (found["version"], found["gpus"], found["wrong_words"]) == ("2.28.3", 4, 0)
    assert found["settings"]["NCCL_ALGO"] == "Ring"
    # Timed by the clock on the wall, so a busy machine only makes it slower.
    assert 0 < found["bus"]["gbps"] <= 650


def test_without_nccl_that_is_said(hardware: Hardware) -> None:
    hardware("b300-4")
    found = burn_in._run("burn_nccl", 60, ["libnccl.so.none"])
    assert found["unknown"].startswith("libnccl.so.none not on the host: ")


def test_a_child_that_hangs_is_killed_and_says_where(hardware: Hardware) -> None:
    hardware("b300-4", "system.hang cuStreamSynchronize")
    began = time.monotonic()
    found = burn_in._run("burn_memory", 2)
    assert time.monotonic() - began < 10
    assert found["unknown"].startswith("no answer in 2 s, killed; it was at: starting CUDA")


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if words and words[1] == str(parent) and words[0] != "Z":
            found.append(int(entry.name))
    return found


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_whatever_ends_the_burn_in_ends_its_load(hardware: Hardware, tmp_path: Path, how: signal.Signals) -> None:
    sources = hardware("b300-4", "system.hang cuStreamSynchronize")
    script = tmp_path / "burn.py"
    script.write_text(f"SOURCES = {sources!r}\nfrom kit.facts.host import burn_in\nburn_in._run('burn_memory', 60)\n")
    process = subprocess.Popen(
        [sys.executable, script], env={**os.environ, "PYTHONPATH": str(paths.ROOT)}, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr and process.stderr.readline() == "starting CUDA\n"
    loading = children(process.pid)
    assert len(loading) == 1
    process.send_signal(how)
    assert process.wait(10) == (-9 if how is signal.SIGKILL else 128 + how)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{loading[0]}").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(f"/proc/{loading[0]}").exists()


def nvml_gpu(index: int, **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "pci_bus_id": f"00000000:0{index}:00.0",
        "ecc_uncorrected": 0,
        "mig_current": False,
        "_processes": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("membership", "gpus", "reasons"),
    [
        (FREE, [nvml_gpu(0)], []),
        ({**FREE, "joined": True}, [nvml_gpu(0)], ["it is joined to a router"]),
        ({**FREE, "joined": {"unknown": "x"}}, [nvml_gpu(0)], ["its router membership is not known: x"]),
        (FREE, [nvml_gpu(0), nvml_gpu(1, _processes=[7, 9])], ["GPU 1 has work: process 7, 9"]),
        (FREE, [nvml_gpu(0, _processes={"unknown": "x"})], ["GPU 0: whether it has work is not known: x"]),
        (FREE, [nvml_gpu(0, mig_current=True)], ["GPU 0: MIG is on, so only a part of it would be tested"]),
        (FREE, {"unknown": "no answer"}, ["its GPUs cannot be read: no answer"]),
        (FREE, [], ["NVML lists no GPU"]),
        (
            {**FREE, "engine_active": True},
            [nvml_gpu(0, _processes=[7]), nvml_gpu(1, _processes=[8])],
            ["its engine runs", "GPU 0 has work: process 7", "GPU 1 has work: process 8"],
        ),
    ],
)
def test_why_not_now_with_every_reason(membership: Any, gpus: Any, reasons: list[str]) -> None:
    assert burn_in.reasons_against(membership, gpus) == reasons


def test_the_processes_of_a_gpu_are_read_as_nvml_lays_them_out() -> None:
    assert api.ProcessInfo._fields_ == pynvml.c_nvmlProcessInfo_v3_t._fields_


def test_checks_are_matched_by_address_and_ecc_counts_stand_beside_them() -> None:
    before = [nvml_gpu(0), nvml_gpu(1), nvml_gpu(2, pci_bus_id={"unknown": "x"})]
    after = [nvml_gpu(0), nvml_gpu(1, ecc_uncorrected=3)]
    found = burn_in.with_ecc({"0000:01:00.0": {"wrong_words": 0}}, before, after)
    assert found[1] == {"index": 1, "check": {"wrong_words": 0}, "ecc_before": 0, "ecc_after": 3}
    assert found[0]["check"] == {"unknown": "CUDA does not see this GPU"}
    assert found[2]["ecc_after"] == {"unknown": "the GPU was not listed any more"}
    assert burn_in.with_ecc({"unknown": "x"}, before, after) == {"unknown": "x"}
    assert burn_in.with_ecc({}, before, {"unknown": "x"})[0]["ecc_after"] == {"unknown": "NVML: x"}


def test_a_figure_is_the_median_with_its_extremes_and_no_figure_comes_from_a_clock_that_stood() -> None:
    assert figure(10**9, [0.5, 0.25, 1.0]) == {
        "gbps": 2.0,
        "lowest_gbps": 1.0,
        "highest_gbps": 4.0,
        "bytes": 10**9,
        "repeats": 3,
    }
    assert figure(10**9, [0.5, 0.0]) == {"unknown": "the clock did not move"}
    assert figure(10**9, []) == {"unknown": "the clock did not move"}


def test_a_sum_of_ones_is_the_number_of_gpus_in_float32() -> None:
    assert sum_of_ones(2).flip == 0x4000000040000000
    assert sum_of_ones(4).flip == 0x4080000040800000
