"""The NVML and CUDA stubs through the official Python binding, each case in a process of its own (a library is loaded once)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from kit.sim.hardware import profile as profiles
from kit.sim.hardware import stubs_build

PREAMBLE = """
import ctypes, json, os, sys
import pynvml as n
def attempt(call, *arguments):
    try:
        return call(*arguments)
    except n.NVMLError as error:
        return f"{type(error).__name__}"
def say(value):
    print(json.dumps(value))
n.nvmlInit()
gpu = n.nvmlDeviceGetHandleByIndex(0)
"""


@pytest.fixture(scope="session")
def libraries(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    stubs_build.build(folder)
    return folder


class Machine:
    """One set of facts and one boot's state, seen by as many processes as a test likes."""

    def __init__(self, libraries: Path, folder: Path, profile: str) -> None:
        self.state = folder / "state"
        self.state.mkdir()
        self.log = folder / "log"
        self.facts = folder / "facts"
        self.facts.write_text(profiles.gpu_facts(profiles.load(profile)))
        for path in (folder, self.state):
            path.chmod(0o777)
        self.env = {
            **os.environ,
            "LD_LIBRARY_PATH": str(libraries),
            "SIM_GPUS_FACTS": str(self.facts),
            "SIM_GPUS_STATE": str(self.state),
            "SIM_GPUS_LOG": str(self.log),
        }

    def set(self, key: str, value: str) -> None:
        (self.state / key).write_text(value + "\n")

    def ask(self, body: str, preamble: str = PREAMBLE, timeout: float = 20) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", preamble + body], env=self.env, capture_output=True, text=True, timeout=timeout, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def machine(libraries, tmp_path):
    def make(profile: str = "b300-4") -> Machine:
        folder = tmp_path / f"m{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return Machine(libraries, folder, profile)

    return make


def test_identity(machine):
    found = machine().ask(
        "pci = n.nvmlDeviceGetPciInfo(gpu)\n"
        "say([n.nvmlDeviceGetCount(), n.nvmlDeviceGetName(gpu), n.nvmlDeviceGetUUID(gpu), pci.busId, pci.bus, "
        "n.nvmlDeviceGetCudaComputeCapability(gpu), n.nvmlDeviceGetNumGpuCores(gpu), n.nvmlSystemGetDriverVersion(), "
        "n.nvmlSystemGetCudaDriverVersion(), n.nvmlDeviceGetVbiosVersion(gpu), n.nvmlDeviceGetInforomImageVersion(gpu)])"
    )
    assert found[:7] == [
        4,
        "NVIDIA B300 SXM6 AC",
        "GPU-6f0c1a52-0b6e-4c0a-9c51-2a40d1b30000",
        "00000000:1B:00.0",
        0x1B,
        [10, 3],
        148 * 128,
    ]
    assert found[7:9] == ["580.95.05", 13000]


def test_handles_by_uuid_and_bus(machine):
    found = machine().ask(
        "a = n.nvmlDeviceGetHandleByUUID('GPU-6f0c1a52-0b6e-4c0a-9c51-2a40d1b30002')\n"
        "b = n.nvmlDeviceGetHandleByPciBusId('00000000:9b:00.0')\n"
        "say([n.nvmlDeviceGetIndex(a), n.nvmlDeviceGetIndex(b), attempt(n.nvmlDeviceGetHandleByUUID, 'GPU-x'), "
        "attempt(n.nvmlDeviceGetHandleByIndex, 4)])"
    )
    assert found == [2, 2, "NVMLError_NotFound", "NVMLError_InvalidArgument"]


HEALTH = """
fabric2, fabric3 = n.c_nvmlGpuFabricInfo_v2_t(), n.c_nvmlGpuFabricInfo_v3_t()
for fabric in (fabric2, fabric3):
    n.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(fabric))
other = n.nvmlDeviceGetHandleByIndex(1)
fields = n.nvmlDeviceGetFieldValues(gpu, [144, 145, 230, 91, 9999])
say({
    "memory": n.nvmlDeviceGetMemoryInfo(gpu).total >> 20,
    "memory2": n.nvmlDeviceGetMemoryInfo(gpu, n.nvmlMemory_v2).total >> 20,
    "ecc": n.nvmlDeviceGetEccMode(gpu),
    "mig": n.nvmlDeviceGetMigMode(gpu),
    "remap": n.nvmlDeviceGetRemappedRows(gpu),
    "errors": n.nvmlDeviceGetTotalEccErrors(gpu, 1, 1),
    "fabric": [fabric2.state, fabric2.status, fabric3.state, fabric3.healthSummary],
    "p2p": n.nvmlDeviceGetP2PStatus(gpu, other, n.NVML_P2P_CAPS_INDEX_NVLINK),
    "link": n.nvmlDeviceGetNvLinkState(gpu, 17),
    "link18": attempt(n.nvmlDeviceGetNvLinkState, gpu, 18),
    "pcie": [n.nvmlDeviceGetCurrPcieLinkGeneration(gpu), n.nvmlDeviceGetMaxPcieLinkWidth(gpu)],
    "fields": [(f.nvmlReturn, f.value.uiVal) for f in fields],
    "reasons": n.nvmlDeviceGetCurrentClocksEventReasons(gpu),
    "old": n.nvmlDeviceGetCurrentClocksThrottleReasons(gpu),
    "temperature": n.nvmlDeviceGetTemperatureV(gpu, 0),
    "numa": attempt(n.nvmlDeviceGetNumaNodeId, gpu),
    "cpus": list(n.nvmlDeviceGetCpuAffinity(gpu, 4)),
    "limits": n.nvmlDeviceGetPowerManagementLimitConstraints(gpu),
})
"""


def test_health_reads(machine):
    found = machine().ask(HEALTH)
    assert found["memory"] == found["memory2"] == 275040
    assert found["ecc"] == [1, 1]
    assert found["mig"] == [0, 0]
    assert found["remap"] == [0, 0, 0, 0]
    assert found["fabric"] == [3, 0, 3, 1]
    assert found["p2p"] == 0
    assert (found["link"], found["link18"]) == (1, "NVMLError_InvalidArgument")
    assert found["pcie"] == [6, 16]
    assert found["fields"] == [[0, 0], [0, 0], [0, 0], [0, 18], [3, 0]]
    assert found["reasons"] == found["old"] == 1
    assert found["numa"] == "NVMLError_NotSupported"
    assert found["cpus"] == [2**64 - 1, 0, 2**64 - 1, 0]
    assert found["limits"] == [200000, 1100000]


def test_faults_show(machine):
    body = (
        "one = n.nvmlDeviceGetHandleByIndex(1); two = n.nvmlDeviceGetHandleByIndex(2)\n"
        "say([n.nvmlDeviceGetCount(), n.nvmlDeviceGetRemappedRows(one), "
        "n.nvmlDeviceGetFieldValues(one, [145])[0].value.uiVal, n.nvmlDeviceGetMigMode(two)])"
    )
    assert machine("remap-failed").ask(body) == [4, [0, 2, 0, 1], 1, [0, 0]]
    assert machine("mig-on").ask(body) == [4, [0, 0, 0, 0], 0, [1, 1]]
    assert machine("b300-3").ask(body)[0] == 3


@pytest.mark.skipif(os.geteuid() != 0, reason="changing a GPU needs root, simulated or not")
def test_a_change_is_seen_by_the_next_process_logged_and_lost_at_reboot(machine):
    here = machine()
    here.ask(
        "n.nvmlDeviceSetPersistenceMode(gpu, 1); n.nvmlDeviceSetPowerManagementLimit(gpu, 900000)\n"
        "n.nvmlDeviceSetGpuLockedClocks(gpu, 2032, 2032); n.nvmlShutdown(); say(1)"
    )
    read = (
        "say([n.nvmlDeviceGetPersistenceMode(gpu), n.nvmlDeviceGetPowerManagementLimit(gpu), "
        "n.nvmlDeviceGetEnforcedPowerLimit(gpu), n.nvmlDeviceGetClockInfo(gpu, 1), "
        "n.nvmlDeviceGetPowerManagementLimit(n.nvmlDeviceGetHandleByIndex(1))])"
    )
    assert here.ask(read) == [1, 900000, 900000, 2032, 1100000]
    log = here.log.read_text()
    assert "nvmlDeviceSetPowerManagementLimit gpu.0.power_limit_mw=900000" in log
    assert log.count("locked_max_mhz=2032") == 1
    for file in here.state.iterdir():
        file.unlink()  # a tmpfs after a reboot
    assert here.ask(read) == [0, 1100000, 1100000, 345, 1100000]


@pytest.mark.skipif(os.geteuid() != 0, reason="changing a GPU needs root, simulated or not")
def test_without_persistence_settings_go_with_the_last_user(machine):
    here = machine()
    here.ask("n.nvmlDeviceSetPowerManagementLimit(gpu, 900000); n.nvmlShutdown(); say(1)")
    assert here.ask("say(n.nvmlDeviceGetPowerManagementLimit(gpu))") == 1100000
    assert "last-user-left gpu.0.power_limit_mw=(reset)" in here.log.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="changing a GPU needs root, simulated or not")
def test_limits_of_the_hardware_are_kept(machine):
    found = machine().ask(
        "power = n.nvmlDeviceSetPowerManagementLimit\n"
        "say([attempt(power, gpu, 1100001), attempt(power, gpu, 199999), "
        "attempt(n.nvmlDeviceSetGpuLockedClocks, gpu, 2033, 2033), attempt(n.nvmlDeviceSetGpuLockedClocks, gpu, 2000, 1000), "
        "n.nvmlDeviceGetPowerManagementLimit(gpu), n.nvmlDeviceGetClockInfo(gpu, 1)])"
    )
    assert found == ["NVMLError_InvalidArgument"] * 4 + [1100000, 345]


def test_only_root_may_change_a_gpu(libraries):
    with tempfile.TemporaryDirectory() as folder:  # readable by nobody, unlike pytest's own
        Path(folder).chmod(0o777)
        here = Machine(libraries, Path(folder), "b300-4")
        _only_root(here)


def _only_root(here: Machine):
    become = "if os.geteuid() == 0: os.setuid(65534)\n"
    found = here.ask(
        become
        + "say([attempt(n.nvmlDeviceSetPersistenceMode, gpu, 1), attempt(n.nvmlDeviceSetPowerManagementLimit, gpu, 900000), "
        "attempt(n.nvmlDeviceSetGpuLockedClocks, gpu, 1000, 1000), n.nvmlDeviceGetPersistenceMode(gpu)])"
    )
    assert found == ["NVMLError_NoPermission"] * 3 + [0]
    assert not here.log.exists()


def test_not_supported_lost_and_uninitialized_are_their_own_answers(machine):
    here = machine()
    here.set("gpu.0.ecc_current", "unsupported")
    here.set("gpu.0.name", "error 15")
    found = here.ask(
        "a = [attempt(n.nvmlDeviceGetEccMode, gpu), attempt(n.nvmlDeviceGetName, gpu)]\n"
        "n.nvmlShutdown(); say([*a, attempt(n.nvmlDeviceGetCount)])"
    )
    assert found == ["NVMLError_NotSupported", "NVMLError_GpuIsLost", "NVMLError_Uninitialized"]


def test_a_library_that_does_not_fit_its_driver_does_not_start(machine):
    found = machine("driver-mismatch").ask(
        "import pynvml as n, json\ntry:\n    n.nvmlInit()\nexcept n.NVMLError as e:\n    print(json.dumps(str(e)))", preamble=""
    )
    assert "version mismatch" in found


def test_a_hanging_call_never_returns_and_can_be_killed(machine):
    here = machine()
    here.set("system.hang", "nvmlDeviceGetName")
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        here.ask("n.nvmlDeviceGetName(gpu)", timeout=1)
    assert time.monotonic() - began < 5
    assert here.ask("say(n.nvmlDeviceGetCount())") == 4


def test_a_slow_call_takes_its_time(machine):
    here = machine()
    here.set("system.delay_ms", "100")
    found = here.ask("import time; t = time.monotonic(); n.nvmlDeviceGetName(gpu); say(time.monotonic() - t)")
    assert found >= 0.1


CUDA = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
def attribute(which, device=0):
    out = ctypes.c_int()
    return [cuda.cuDeviceGetAttribute(ctypes.byref(out), which, device), out.value]
"""


def test_cuda_is_the_authority_on_sms(machine):
    body = (
        "code = cuda.cuInit(0); number = ctypes.c_int(); cuda.cuDeviceGetCount(ctypes.byref(number))\n"
        "memory = ctypes.c_size_t(); cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), 0)\n"
        "found = [attribute(which) for which in (16, 75, 76)]\n"
        "print(json.dumps([code, number.value, *found, memory.value >> 20, attribute(16, 9)[0]]))"
    )
    assert machine().ask(body, CUDA) == [0, 4, [0, 148], [0, 10], [0, 3], 275040, 101]
    assert machine("gb300-4").ask(body, CUDA)[2] == [0, 152]


def test_cuda_does_not_start_before_the_fabric_or_on_a_mismatch(machine):
    body = "print(json.dumps([cuda.cuInit(0), attribute(16)[0]]))"
    assert machine("fabric-in-progress").ask(body, CUDA) == [802, 3]
    assert machine("driver-mismatch").ask(body, CUDA) == [803, 3]
