"""The NVML and CUDA readers: their numbers against nvidia-ml-py, their reading against the simulated driver libraries."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml
import pytest

from kit.facts.host import bundle, cuda, gpu, nvml
from kit.facts.host import nvml_api as api
from kit.facts.host.child import Child
from kit.facts.host.read import Unreadable

STUBS = next(Path(__file__).parents[3].glob("kit/sim/**/nvml_read.c")).parent
GPU = {
    "name": "NVIDIA B300 SXM6 AC",
    "uuid": "GPU-0",
    "bus_id": "00000000:1B:00.0",
    "sms": 148,
    "cores": 18944,
    "cc_major": 10,
    "cc_minor": 3,
    "memory_mib": 275040,
    "memory_reserved_mib": 612,
    "clock_sm_mhz": 345,
    "clock_sm_max_mhz": 2032,
    "clock_reasons": 5,
    "power_limit_mw": 1100000,
    "power_limit_default_mw": 1100000,
    "power_limit_min_mw": 200000,
    "power_limit_max_mw": 1100000,
    "power_draw_mw": 187000,
    "temperature": 34,
    "persistence": 1,
    "compute_mode": 3,
    "mig_current": 0,
    "mig_pending": 1,
    "ecc_current": 1,
    "ecc_pending": 1,
    "ecc_uncorrected": 2,
    "remap_correctable": 0,
    "remap_uncorrectable": 4,
    "remap_pending": 1,
    "remap_failed": 0,
    "recovery_action": 4,
    "fabric_state": 3,
    "fabric_status": 0,
    "fabric_health_mask": 0,
    "fabric_health_summary": 1,
    "nvlinks": 18,
    "p2p": 0,
    "pcie_generation": 6,
    "pcie_generation_max": 6,
    "pcie_width": 8,
    "pcie_width_max": 16,
    "vbios": "97.10",
    "inforom": "G548",
    "cpus": "0-1",
    "pci_device_id": 0,
    "pci_subsystem_id": 0,
}
Simulate = Callable[..., None]


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to build the simulated driver libraries")
    folder = tmp_path_factory.mktemp("libraries")
    for library, sources in (
        (api.LIBRARY, ("nvml.c", "nvml_read.c", "nvml_write.c", "hardware.c")),
        (cuda.LIBRARY, ("cuda.c", "hardware.c")),
    ):
        paths = [str(STUBS / source) for source in sources]
        subprocess.run([compiler, "-shared", "-fPIC", "-o", str(folder / library), *paths], check=True)
    return folder


@pytest.fixture
def simulate(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulate:
    """Simulated GPUs, in this process and in children; keyword ``system`` for the driver, ``gpus`` for each GPU's differences."""
    facts = tmp_path / "gpus.conf"
    monkeypatch.setenv("SIM_GPUS_FACTS", str(facts))
    monkeypatch.setenv("SIM_GPUS_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(api.Nvml.__init__, "__defaults__", (str(libraries / api.LIBRARY),))
    monkeypatch.setattr(cuda, "LIBRARY", str(libraries / cuda.LIBRARY))
    sources = bundle.own_sources()
    here = f"import os\nos.environ['SIM_GPUS_FACTS'] = {str(facts)!r}\n"
    for name in ("nvml_api", "cuda"):
        text = sources[f"{bundle.PACKAGE}.{name}"]
        for library in (api.LIBRARY, "libcuda.so.1"):
            text = text.replace(f'"{library}"', repr(str(libraries / library)))
        future, rest = text.split("from __future__ import annotations\n", 1)
        sources[f"{bundle.PACKAGE}.{name}"] = f"{future}from __future__ import annotations\n{here}{rest}"
    monkeypatch.setattr(sys.modules["__main__"], "SOURCES", sources, raising=False)

    def write(system: dict[str, Any] | None = None, gpus: tuple[dict[str, Any], ...] = ({},)) -> None:
        driver = {"driver": "580.95.05", "nvml": "13.580.95.05", "cuda": 13000, "count": len(gpus), "init_error": 0}
        lines = [f"system.{key} {value}" for key, value in (driver | (system or {})).items()]
        for index, differs in enumerate(gpus):
            lines += [f"gpu.{index}.{key} {value}" for key, value in (GPU | differs).items()]
        facts.write_text("\n".join(lines) + "\n")

    return write


@pytest.mark.parametrize(
    ("ours", "theirs", "version"),
    [
        (api.Memory, pynvml.c_nvmlMemory_v2_t, (2, pynvml.nvmlMemory_v2)),
        (api.PciInfo, pynvml.nvmlPciInfo_t, None),
        (api.FabricInfo, pynvml.c_nvmlGpuFabricInfo_v2_t, (2, pynvml.nvmlGpuFabricInfo_v2)),
        (api.FieldValue, pynvml.c_nvmlFieldValue_t, None),
        (api.Value, pynvml.c_nvmlValue_t, None),
    ],
)
def test_structures_are_laid_out_as_nvidia_has_them(ours: Any, theirs: Any, version: tuple[int, int] | None) -> None:
    assert ctypes.sizeof(ours) == ctypes.sizeof(theirs)
    for name, *_ in ours._fields_:
        assert getattr(ours, name).offset == getattr(theirs, name).offset, name
    if version:
        assert api.versioned(ours, version[0]) == version[1]


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("INVALID_ARGUMENT", "NVML_ERROR_INVALID_ARGUMENT"),
        ("NOT_SUPPORTED", "NVML_ERROR_NOT_SUPPORTED"),
        ("FUNCTION_NOT_FOUND", "NVML_ERROR_FUNCTION_NOT_FOUND"),
        ("CLOCK_SM", "NVML_CLOCK_SM"),
        ("TEMPERATURE_GPU", "NVML_TEMPERATURE_GPU"),
        ("ECC_VOLATILE", "NVML_VOLATILE_ECC"),
        ("ERROR_UNCORRECTED", "NVML_MEMORY_ERROR_TYPE_UNCORRECTED"),
        ("P2P_NVLINK", "NVML_P2P_CAPS_INDEX_NVLINK"),
        ("P2P_OK", "NVML_P2P_STATUS_OK"),
        ("P2P_UNKNOWN", "NVML_P2P_STATUS_UNKNOWN"),
        ("NVLINK_MAX_LINKS", "NVML_NVLINK_MAX_LINKS"),
        ("AFFINITY_NODE", "NVML_AFFINITY_SCOPE_NODE"),
        ("FIELD_RECOVERY_ACTION", "NVML_FI_DEV_GET_GPU_RECOVERY_ACTION"),
    ],
)
def test_constants_are_nvidias(ours: str, theirs: str) -> None:
    assert getattr(api, ours) == getattr(pynvml, theirs)


def test_names_of_values_are_nvidias() -> None:
    for code in api.ERRORS:
        assert code in {getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
    for prefix, names in (
        ("NVML_GPU_RECOVERY_ACTION_", api.RECOVERY_ACTIONS),
        ("NVML_GPU_FABRIC_STATE_", api.FABRIC_STATES),
        ("NVML_COMPUTEMODE_", api.COMPUTE_MODES),
    ):
        for value, name in names.items():
            assert getattr(pynvml, prefix + name.upper()) == value
    for bit, name in api.CLOCK_REASONS.items():
        theirs = "".join(part.capitalize() for part in name.split("_"))
        found = [getattr(pynvml, f"nvmlClocks{kind}Reason{theirs}", None) for kind in ("Event", "Throttle")]
        assert bit in found, name


def test_every_fact_of_a_gpu_is_read(simulate: Simulate) -> None:
    simulate(gpus=({}, {"uuid": "GPU-1", "bus_id": "00000000:43:00.0"}))
    found = nvml.read()
    assert (found["library_version"], found["cuda_version"], len(found["gpus"])) == ("580.95.05", "13.0", 2)
    one = found["gpus"][0]
    expected = {
        "compute_capability": "10.3",
        "memory_mib": 275040,
        "cores_over_128": 148.0,
        "clock_reasons": ["gpu_idle", "sw_power_cap"],
        "power_limit_min_w": 200.0,
        "persistence": True,
        "compute_mode": "exclusive_process",
        "mig_current": False,
        "mig_pending": True,
        "ecc_uncorrected": 2,
        "remapped_uncorrectable": 4,
        "remap_pending": True,
        "remap_failed": False,
        "recovery_action": "drain_and_reset",
        "nvlinks_active": 18,
        "p2p_nvlink": {"1": True},
        "fabric_state": "completed",
        "fabric_status": "success",
        "pcie_width": 8,
        "_cpus": [0, 1],
    }
    assert {name: one[name] for name in expected} == expected
    assert [device["sms"] for device in cuda.read()["devices"]] == [148, 148]


def test_what_a_gpu_lacks_is_not_supported_and_hurts_nothing_else(simulate: Simulate) -> None:
    simulate(gpus=({"mig_current": "unsupported", "temperature": "error 999", "nvlinks": "unsupported"},))
    one = nvml.read()["gpus"][0]
    assert one["mig_current"] == one["mig_pending"] == {"unknown": "not supported"}
    assert one["temperature_c"] == {"unknown": "nvmlDeviceGetTemperature: unknown error"}
    assert "unknown" in one["nvlinks_active"]
    assert one["memory_mib"] == 275040


def test_cuda_says_why_it_does_not_start_before_the_fabric_is_up(simulate: Simulate) -> None:
    simulate(gpus=({"fabric_state": 2},))
    assert nvml.read()["gpus"][0]["fabric_state"] == "in_progress"
    assert "error 802" in cuda.read()["devices"]["unknown"]


def test_a_driver_that_refuses_is_said_for_all_gpus(simulate: Simulate) -> None:
    simulate({"init_error": 18})
    assert nvml.read()["gpus"] == {"unknown": "nvmlInitWithFlags: driver/library version mismatch"}


def test_without_a_library_all_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api.Nvml.__init__, "__defaults__", ("libnvidia-ml.so.none",))
    monkeypatch.setattr(cuda, "LIBRARY", "libcuda.so.none")
    assert all("unknown" in value for value in nvml.read().values())
    assert "unknown" in cuda.read()["devices"]


def test_a_child_answers(simulate: Simulate) -> None:
    simulate(gpus=({}, {}, {}))
    both = [Child("nvml", 20), Child("cuda", 20)]
    assert [len(both[0].result()["gpus"]), len(both[1].result()["devices"])] == [3, 3]


def test_a_library_that_hangs_is_killed_and_named(simulate: Simulate) -> None:
    simulate({"hang": "nvmlDeviceGetTemperature"})
    child = Child("nvml", 1.5)
    began = time.monotonic()
    with pytest.raises(Unreadable, match=r"no answer in 1\.5 s, killed; it was at: GPU 0 temperature"):
        child.result()
    assert time.monotonic() - began < 4
    assert child.process.wait(2) == -9


def test_a_library_that_crashes_is_named(simulate: Simulate, monkeypatch: pytest.MonkeyPatch) -> None:
    simulate()
    sources = dict(bundle.own_sources())
    sources[f"{bundle.PACKAGE}.nvml"] = (
        "import ctypes\nfrom kit.facts.host.child import doing\ndef main():\n    doing('a call')\n    ctypes.string_at(0)\n"
    )
    monkeypatch.setattr(sys.modules["__main__"], "SOURCES", sources, raising=False)
    with pytest.raises(Unreadable, match="nvml reader ended with signal 11 at: a call"):
        Child("nvml", 20).result()


def device(bus_id: Any, sms: Any = 148) -> dict[str, Any]:
    return {"pci_bus_id": bus_id, "sms": sms}


def test_sm_counts_are_matched_by_address_not_by_order() -> None:
    mine = {"pci_bus_id": "00000000:1B:00.0"}
    assert gpu.sms_of(mine, [device("0000:43:00.0", 152), device("0000:1B:00.0", 148)], 0, 2) == 148
    with pytest.raises(Unreadable, match="does not see this GPU"):
        gpu.sms_of(mine, [device("0000:43:00.0")], 0, 1)


def test_without_addresses_the_order_counts_only_when_all_are_seen() -> None:
    lacking = {"unknown": "no function"}
    assert gpu.sms_of({"pci_bus_id": lacking}, [device(lacking, 1), device(lacking, 2)], 1, 2) == 2
    with pytest.raises(Unreadable, match="CUDA sees 1 devices, NVML 2"):
        gpu.sms_of({"pci_bus_id": lacking}, [device(lacking)], 1, 2)
    with pytest.raises(Unreadable, match="error 802"):
        gpu.sms_of({"pci_bus_id": lacking}, {"unknown": "cuInit: error 802"}, 0, 1)


LOCK = {"minimum_mhz": 1900, "maximum_mhz": 1900}


@pytest.mark.parametrize(
    ("record", "now", "reasons", "found"),
    [
        (LOCK, 1905, ["gpu_idle"], LOCK),
        (LOCK, 1200, ["sw_power_cap"], LOCK),
        (LOCK, 2032, [], "recorded as 1900-1900 MHz, but the SM clock reads 2032 MHz"),
        (LOCK, 1000, ["applications_clocks_setting"], "recorded as 1900-1900 MHz, but the SM clock reads 1000 MHz"),
        (LOCK, 345, ["gpu_idle"], "reads 345 MHz"),
        (LOCK, 345, {"unknown": "timed out"}, "reads 345 MHz"),
        (LOCK, {"unknown": "timed out"}, [], "not known: timed out"),
        (None, 345, [], "did not stay locked"),
    ],
)
def test_a_locked_clock_is_what_was_recorded_unless_the_clock_says_otherwise(
    record: Any, now: Any, reasons: Any, found: Any
) -> None:
    one = {"uuid": "GPU-0", "sm_clock_mhz": now, "clock_reasons": reasons}
    if isinstance(found, dict):
        assert gpu.locked_clock(one, {"GPU-0": record}) == found
        return
    with pytest.raises(Unreadable, match=found):
        gpu.locked_clock(one, {"GPU-0": record})


def test_xids_of_the_journal_and_of_the_ring_buffer_read_alike() -> None:
    journal = "[ 1234.567890] node kernel: NVRM: Xid (PCI:0000:1b:00): 79, pid=1, GPU has fallen off the bus.\n"
    ring = "[   12.000001] NVRM: Xid (PCI:0000:43:00): 13, Graphics Exception\n[   13.1] usb 1-1: new device\n"
    assert gpu.parse_xids(journal + ring) == ["1234.567890 0000:1b:00 79", "12.000001 0000:43:00 13"]


@pytest.mark.parametrize(
    ("ring", "found"),
    [
        ("[    0.000000] Linux version 6.12\n", []),
        ("[  900.000000] usb 1-1: new device\n", "lost its beginning"),
        ("", "lost its beginning"),
        ("[  900.000000] NVRM: Xid (PCI:0000:43:00): 13, x\n", ["900.000000 0000:43:00 13"]),
    ],
)
def test_a_ring_buffer_without_its_beginning_proves_no_absence(monkeypatch: pytest.MonkeyPatch, ring: str, found: Any) -> None:
    monkeypatch.setattr(gpu, "run", lambda *_: (0, "", ""))
    monkeypatch.setattr(gpu, "output", lambda *_: ring)
    if isinstance(found, list):
        assert gpu.xids() == found
        return
    with pytest.raises(Unreadable, match=found):
        gpu.xids()
