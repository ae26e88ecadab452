"""`gpus.driver.manage: install`: a newer driver by unhold, install, hold; then a reboot, only when asked for, that must help.

The new libraries do not talk to the module that is still loaded, so between the two no GPU answers.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kit import paths
from kit.sim.rootfs.packages import DRIVER, NEWER_DRIVER

OnHost = Callable[..., "subprocess.CompletedProcess[str]"]


def fleet_with_newer_driver(name: str, folder: Path) -> Path:
    """The simulated host's declaration, with the driver ours to install and the lock moved on."""
    source = paths.cache_dir() / "fleet"
    (folder / "hosts").mkdir(parents=True)
    spec = yaml.safe_load((source / "hosts" / f"{name}.yml").read_text())
    spec["gpus"]["driver"] |= {"manage": "install", "packages": ["nvidia-driver", "nvidia-fabricmanager"]}
    (folder / "hosts" / f"{name}.yml").write_text(yaml.safe_dump(spec))
    (folder / "fleet.yml").write_text("schema_version: 1\n")
    shutil.copyfile(source / "lock.yml", folder / "lock.yml")
    lock = folder / "lock.yml"
    lock.write_text(lock.read_text().replace(DRIVER, NEWER_DRIVER))
    return folder


def invoke(fleet: Path, *words: str) -> dict[str, Any]:
    """A command as a user gives it; its document, and its exit status as ``exit``."""
    done = subprocess.run(
        [str(Path(sys.executable).parent / "invoke"), *words, "--format", "json"],
        cwd=paths.ROOT, env=os.environ | {"B300KIT_FLEET": str(fleet)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    return json.loads(done.stdout) | {"exit": done.returncode}


def steps(document: dict[str, Any], name: str) -> dict[str, str]:
    """id -> action of what is not kept."""
    return {s["id"]: s["action"] for s in document["result"]["hosts"][name]["steps"] if s["action"] != "keep"}


def test_a_newer_driver_is_installed_and_loaded_by_a_reboot_that_was_asked_for(
    fresh_sim_host: Callable[[str], str], on_host: OnHost, tmp_path: Path
) -> None:
    name = fresh_sim_host("b300-4")
    fleet = fleet_with_newer_driver(name, tmp_path / "fleet")

    before = invoke(fleet, "provision", "--host", name)
    assert before["exit"] == 3, before["failures"]
    assert "reboot.host" in steps(before, name)
    assert on_host(name, "cat /sys/module/nvidia/version").stdout.strip() == DRIVER
    held = on_host(name, "apt-mark showhold; dpkg-query -W -f '${Version}\\n' nvidia-driver").stdout.split()
    assert {"nvidia-driver", f"{NEWER_DRIVER}-1"} <= set(held)

    between = invoke(fleet, "plan", "--host", name)
    assert between["exit"] == 3, between["failures"]
    assert set(steps(between, name).values()) == {"reboot"}, "silent GPUs are no fault of the hardware here"
    assert {"gpu.sms", "gpu.sm_clock", "driver.lock"} <= set(steps(between, name))

    on_host(name, "sudo mv /opt/sim/driver /opt/sim/driver.not-built")
    vain = invoke(fleet, "provision", "--host", name, "--reboot")
    assert vain["exit"] == 11, vain
    assert {f["code"] for f in vain["failures"]} == {"apply.reboot_in_vain"}

    on_host(name, "sudo mv /opt/sim/driver.not-built /opt/sim/driver")
    done = invoke(fleet, "provision", "--host", name, "--reboot")
    assert done["exit"] == 0, done["failures"]
    assert on_host(name, "cat /sys/module/nvidia/version").stdout.strip() == NEWER_DRIVER
    assert invoke(fleet, "verify", "--host", name)["exit"] == 0


def test_driver_settings_and_reboot_take_one_command(fresh_sim_host: Callable[[str], str], tmp_path: Path) -> None:
    """A new host: its GPUs answer the new driver only after the reboot, so their settings come in a second round."""
    name = fresh_sim_host("driver-mismatch")
    fleet = fleet_with_newer_driver(name, tmp_path / "fleet")
    done = invoke(fleet, "provision", "--host", name, "--reboot")
    assert done["exit"] == 0, done["failures"]
    assert invoke(fleet, "provision", "--host", name)["exit"] == 0
