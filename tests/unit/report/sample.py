"""A host, a plan and a recorded run to look at, built from the shared types: the 16-of-128 host that this kit is for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kit.apply.result import ApplyEvent, ApplyResult
from kit.apply.variables import role_variables
from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.cores.model import Assignment, CoreDecision
from kit.errors import Failure, failure
from kit.facts.model import Facts
from kit.plan.model import Action, ManagedFile, Plan, Step
from kit.record.model import StageLine
from kit.record.store import Room, Run
from kit.spec.model import HostSpec, Lock

ROOT = Path(__file__).resolve().parents[3]
BOOT = "0c4a6a39-8f1e-4a5e-9a3e-7b1d2c3e4f50"
FAST = (1, 5, 9, 13, 17, 21, 25, 29, 66, 70, 74, 78, 82, 86, 90, 94)
"""Physical cores (by their lowest logical CPU) that reach 4,600 MHz: 8 a package, not at its start."""


def unknown(why: str) -> dict[str, str]:
    return {"unknown": why}


def spec(name: str = "b300-01") -> HostSpec:
    raw = yaml.safe_load((ROOT / "fleet/examples/example.yml").read_text())
    raw["network"]["engine"]["ports"] = "30000"
    raw["network"]["metrics"]["ports"] = "29000"
    return HostSpec.model_validate({**raw, "name": name})


def lock() -> Lock:
    return Lock(schema_version=1, driver="580.65.06", fabric_manager="580.65.06", packages={"docker.io": "26.1.5"})


def logical(cpu: int, **changes: Any) -> dict[str, Any]:
    core = cpu % 128
    fast = core in FAST
    return {
        "cpu": cpu,
        "core": core % 64,
        "package": core // 64,
        "node": core // 32,
        "siblings": [core, core + 128],
        "online": True,
        "isolated": False,
        "usable": True,
        "base_khz": 2_300_000,
        "max_khz": 4_600_000 if fast else 2_300_000,
        "scaling_max_khz": 4_600_000 if fast else 2_300_000,
        "current_khz": 2_295_000,
        "governor": "powersave",
        "driver": "intel_pstate",
        "highest_perf": 46 if fast else 23,
        "prefcore_ranking": unknown("no such file"),
        **changes,
    }


def gpu(index: int, **changes: Any) -> dict[str, Any]:
    return {
        "index": index,
        "name": "NVIDIA B300 SXM6 AC",
        "uuid": f"GPU-{index:08x}-0000",
        "pci_bus_id": f"00000000:{index + 1:02x}:00.0",
        "sms": 148,
        "cores_over_128": 148.0,
        "compute_capability": "10.3",
        "memory_mib": 275040,
        "sm_clock_mhz": 120,
        "max_sm_clock_mhz": 2032,
        "locked_sm_clock": unknown("no unit of ours ran"),
        "clock_reasons": ["gpu_idle"],
        "power_limit_w": 1100.0,
        "power_limit_default_w": 1100.0,
        "power_limit_min_w": 400.0,
        "power_limit_max_w": 1100.0,
        "power_draw_w": 182.4,
        "temperature_c": 34,
        "persistence": index != 2,
        "compute_mode": "default",
        "mig_current": False,
        "mig_pending": False,
        "ecc_current": True,
        "ecc_pending": True,
        "ecc_uncorrected": 0,
        "remapped_uncorrectable": 0,
        "remap_pending": False,
        "remap_failed": False,
        "recovery_action": "none",
        "nvlinks_active": 18,
        "p2p_nvlink": {str(n): True for n in range(4) if n != index},
        "fabric_state": "completed",
        "fabric_status": "ok",
        "pcie_generation": 6,
        "pcie_generation_max": 6,
        "pcie_width": 16,
        "pcie_width_max": 16,
        "vbios": "97.10.31.00.02",
        "inforom": "G548.0250.00.02",
        "numa_node": 1 if index < 2 else 2,
        **changes,
    }


def facts_document(**changes: Any) -> dict[str, Any]:
    """The probe's JSON for this host; ``changes`` replace whole areas."""
    return {
        "schema_version": 1,
        "collected_at": "2026-11-29T19:40:11Z",
        "seconds": 0.84,
        "privileged": True,
        "host": {
            "hostname": "b300-01",
            "os_id": "debian",
            "os_version": "12",
            "kernel": "6.1.0-41-amd64",
            "next_kernel": "6.1.0-41-amd64",
            "next_kernel_dkms": "installed",
            "boot_id": BOOT,
            "uptime_s": 86_423.0,
            "python": "3.11.2",
            "virtualization": "none",
            "clock_synchronized": True,
            "reboot_required": False,
        },
        "cpu": {
            "model": "Intel(R) Xeon(R) 6776P",
            "packages": 2,
            "physical_cores": 128,
            "smt": True,
            "nodes": [0, 1, 2, 3],
            "logical": [logical(n) for n in range(256)],
            "boost": True,
            "priority": {
                "tool": True,
                "supported": True,
                "enabled": True,
                "priority_cpus": sorted([*FAST, *(n + 128 for n in FAST)]),
                "bucket_cores": 8,
                "bucket_mhz": 4600,
            },
            "measured": {
                "boot_id": BOOT,
                "unit": "mhz",
                "cores": [
                    {"core_cpu": n, "alone_mhz": 4597.5 if n in FAST else 2299.1, "loaded_mhz": 4588.0 if n in FAST else 2298.4}
                    for n in range(128)
                ],
            },
            "irqbalance_active": True,
            "irqbalance_banned": [],
            "irq_cpus": list(range(256)),
            "default_irq_cpus": list(range(256)),
            "cstate_latency_us": 190,
            "kernel_command_line": "BOOT_IMAGE=/vmlinuz-6.1.0-41-amd64 root=UUID=5f0c ro quiet",
        },
        "memory": {
            "total_kib": 2_113_929_216,
            "available_kib": 2_090_000_000,
            "cgroup_limit_kib": unknown("no limit"),
            "cgroup_limited": False,
            "huge_page_kib": 2048,
            "huge_pages_total": 0,
            "huge_pages_free": 0,
            "swap_total_kib": 8_388_608,
            "swap_in_fstab": True,
            "thp": "always",
            "shm_kib": 1_056_964_608,
            "node_total_kib": {str(n): 528_482_304 for n in range(4)},
        },
        "limits": {"process": "user session", "memlock_kib": 8192, "nofile": 1024},
        "disks": [
            {
                "path": "/var/lib/docker",
                "filesystem": "ext4",
                "total_kib": 3_750_000_000,
                "free_kib": 3_100_000_000,
                "read_only": False,
            },
            {
                "path": "/var/lib/b300kit",
                "filesystem": unknown("no such folder yet"),
                "total_kib": unknown("no such folder yet"),
                "free_kib": unknown("no such folder yet"),
                "read_only": unknown("no such folder yet"),
            },
        ],
        "packages": {
            "docker.io": {"version": "26.1.5", "held": False, "candidate": "26.1.5"},
            "nvidia-fabricmanager-580": unknown("not installed"),
        },
        "services": {
            "docker.service": {
                "load": "loaded",
                "active": "active",
                "enabled": "enabled",
                "needs_daemon_reload": False,
                "result": "success",
                "since_boot_s": 11.2,
            },
            "b300kit-gpu.service": {
                "load": "not-found",
                "active": "inactive",
                "enabled": unknown("no such unit"),
                "needs_daemon_reload": False,
                "result": "success",
                "since_boot_s": unknown("never"),
            },
        },
        "sysctls": {"vm.swappiness": "60", "kernel.numa_balancing": "1"},
        "files": {
            "/etc/docker/daemon.json": {
                "exists": True,
                "sha256": "ab" * 32,
                "mode": "0644",
                "owner": "root",
                "group": "root",
                "content": "{}\n",
            },
            "/etc/b300kit/gpu.env": {
                "exists": False,
                "sha256": unknown("absent"),
                "mode": unknown("absent"),
                "owner": unknown("absent"),
                "group": unknown("absent"),
                "content": unknown("absent"),
            },
        },
        "users": {"b300kit": unknown("no such user")},
        "gpu": {
            "driver_version": "580.65.06",
            "library_version": "580.65.06",
            "cuda_version": "13.0",
            "fabric_manager_version": "580.65.06",
            "gpus": [gpu(n) for n in range(4)],
            "xids_since_boot": [],
        },
        "burn_in": {
            "nccl_all_reduce_gbps": unknown("all_reduce_perf is not on the host"),
            "nvlink_gbps": unknown("nvbandwidth is not on the host"),
            "hbm_ok": unknown("no tool for it"),
        },
        "docker": {
            "version": "26.1.5",
            "live_restore": False,
            "log_driver": "json-file",
            "data_root": "/var/lib/docker",
            "cdi_devices": [],
            "running_containers": 0,
        },
        "firewall": {"table_text": "", "listening_tcp": ["0.0.0.0:22"]},
        "membership": {"joined": False, "marker": "", "engine_active": False},
        **changes,
    }


def facts(**changes: Any) -> Facts:
    return Facts.model_validate(facts_document(**changes))


DAEMON = """{
  "live-restore": true,
  "log-driver": "json-file",
  "log-opts": {
    "max-file": "5",
    "max-size": "100m"
  }
}
"""
STEPS = (
    Step(id="gpus.count", action=Action.KEEP, reason="GPU count is as declared", expected="4", found="4"),
    Step(id="gpus.sms", action=Action.KEEP, reason="SM count is as declared on all 4 GPUs", expected="148", found="148"),
    Step(
        id="gpus.persistence",
        action=Action.CHANGE,
        reason="persistence is off on GPU 2, and a boot would lose it everywhere",
        expected="on",
        found="GPU 2: off",
        role="gpu",
    ),
    Step(
        id="cpu.governor",
        action=Action.CHANGE,
        reason="256 CPUs run powersave; serving cores would lag behind bursts",
        expected="performance",
        found="powersave on CPUs 0-255",
        role="cpu",
    ),
    Step(
        id="memory.swap",
        action=Action.CHANGE,
        reason="swap would move HiCache pages to disk",
        expected="no swap",
        found="8.0 GiB",
        role="memory",
    ),
    Step(
        id="memory.total",
        action=Action.KEEP,
        reason="2016 GiB are enough for 4 pools and the reserve",
        expected="at least 1900 GiB",
        found="2016.0 GiB",
    ),
    Step(
        id="docker.daemon",
        action=Action.CHANGE,
        reason="/etc/docker/daemon.json has other content (a restarted daemon leaves the engine)",
        expected="c0ffee 0644 root:root",
        found="abababababab 0644 root:root",
        role="container_engine",
        disruptive=True,
        file=ManagedFile(path="/etc/docker/daemon.json", content=DAEMON),
        current='{\n  "log-driver": "json-file"\n}\n',
    ),
    Step(
        id="firewall.rules",
        action=Action.CHANGE,
        reason="/etc/b300kit/firewall.nft is not there (only the router reaches the engine)",
        expected="9f2b 0644 root:root",
        found="absent",
        role="firewall",
        file=ManagedFile(
            path="/etc/b300kit/firewall.nft", content="table inet b300kit {\n  chain input {\n    tcp dport 30000 drop\n  }\n}\n"
        ),
        current="",
    ),
)
REBOOT = Step(
    id="cpu.cmdline",
    action=Action.REBOOT,
    reason="C-states are limited from the next boot on",
    expected="intel_idle.max_cstate=1",
    found="not set",
    role="cpu",
)
REFUSE = (
    Step(
        id="gpus.mig",
        action=Action.REFUSE,
        reason="MIG is on on GPU 1; one engine needs whole GPUs",
        expected="off",
        found="GPU 1: on",
        next="stop what uses GPU 1, then: nvidia-smi -i 1 -mig 0",
    ),
    Step(
        id="burn_in.hbm",
        action=Action.REFUSE,
        reason="HBM was not checked, so it is not verified",
        expected="passed",
        found="not verified (no tool for it)",
        next="install the checking tool, or declare burn_in.hbm: absent",
    ),
)


def plan(host: str = "b300-01", steps: tuple[Step, ...] = STEPS) -> Plan:
    return Plan(host=host, boot_id=BOOT, steps=steps)


def settled(host: str = "b300-01") -> Plan:
    """The same steps when all is as declared."""
    return plan(host, tuple(s.model_copy(update={"action": Action.KEEP, "file": None, "current": None}) for s in STEPS))


def decision() -> CoreDecision:
    """What the kit itself decides about this host."""
    return decide(spec().cpu, facts().cpu)


def assignment() -> Assignment:
    return assign(spec().cpu, decision(), facts())


def events(host: str) -> tuple[ApplyEvent, ...]:
    made = (
        ("", "Gather what Ansible needs", "ok", 1.1), ("memory", "Switch swap off", "changed", 2.4),
        ("memory", "Keep swap out of fstab", "changed", 0.9), ("cpu", "Write the governor unit", "changed", 1.2),
        ("cpu", "Start the governor unit", "changed", 1.9), ("gpu", "Start the GPU settings unit", "changed", 3.6),
        ("container_engine", "Write daemon.json", "changed", 1.0), ("container_engine", "Reload docker", "changed", 6.2),
        ("firewall", "Check the rules before loading them", "ok", 0.8), ("firewall", "Load the rules", "changed", 1.3),
    )  # fmt: skip
    return tuple(ApplyEvent(host=host, role=r, task=t, status=s, seconds=n) for r, t, s, n in made)


def timed(room: Room, stage: str, offset: float, seconds: float | None, failures: tuple[Failure, ...] = ()) -> None:
    """A stage at a given time; without ``seconds`` one that never ended."""
    at = f"2026-11-29T19:40:{int(offset) % 60:02d}.000+00:00"
    room.append("stages", StageLine(stage=stage, event="begin", at=at, offset_s=offset))
    if seconds is not None:
        outcome = "failed" if failures else "ok"
        end = StageLine(
            stage=stage, event="end", at=at, offset_s=offset + seconds, seconds=seconds, outcome=outcome, failures=failures
        )
        room.append("stages", end)


JUNIT = """<testsuites><testsuite name="b300-01">
<testcase name="test_swap_is_off"/><testcase name="test_ssh_still_answers"/>
<testcase name="test_cpuset_is_enforced"><skipped message="a container cannot prove it&#10;more"/></testcase>
</testsuite></testsuites>
"""
LOST = failure(
    "ssh.unreachable",
    "b300-03: ssh 192.0.2.12:22",
    "an answer within 10 s",
    "No route to host",
    "look at the host's console and its network, then run again",
)


def recorded(runs_dir: Path, finish: bool = True, hosts: int = 3) -> Run:
    """A run over three hosts: one provisioned, one refused, one not reached. Unfinished, it stops while it applies."""
    run = Run.create("provision", ["invoke", "provision", "--host", "b300"], runs_dir)
    names = ("b300-01", "b300-02", "b300-03")[:hosts]
    for name in names:
        run.host(name).put("spec", spec(name))
        run.host(name).put("lock", lock())
    good = run.host(names[0])
    timed(good, "facts", 0.02, 1.31)
    good.put("facts", facts())
    timed(good, "plan", 1.34, 0.06)
    good.put("plan", plan())
    good.put("cores", decision())
    good.put("assignment", assignment())
    good.put("apply", role_variables(plan()))
    timed(run, "apply", 1.45, 24.8 if finish else None)
    for event in events("b300-01")[: None if finish else 4]:
        good.event(event)
    if hosts > 1:
        bad = run.host(names[1])
        timed(bad, "facts", 0.02, 1.52)
        bad.put("facts", facts())
        timed(bad, "plan", 1.55, 0.05)
        bad.put("plan", plan("b300-02", STEPS + REFUSE))
    if hosts > 2:
        timed(run.host(names[2]), "facts", 0.02, 10.04, (LOST,))
    if finish:
        good.put("recap", ApplyResult(host="b300-01", ok=10, changed=8, seconds=20.4, events=events("b300-01")))
        timed(good, "verify-facts", 26.3, 1.28)
        after = facts_document()
        after["memory"] |= {"swap_total_kib": 0, "swap_in_fstab": False}
        after["cpu"]["logical"] = [logical(n, governor="performance") for n in range(256)]
        after["gpu"]["gpus"] = [
            gpu(n, persistence=True, locked_sm_clock={"minimum_mhz": 2032, "maximum_mhz": 2032}) for n in range(4)
        ]
        after["docker"] |= {"live_restore": True}
        good.put("verify-facts", Facts.model_validate(after))
        timed(good, "verify-plan", 27.6, 0.06)
        good.put("verify-plan", settled())
        (good.path / "outside.junit.xml").write_text(JUNIT)
        ends = {"b300-01": 0, "b300-02": 4, "b300-03": 7}
        run.finish(8 if hosts == 3 else 0, [LOST] if hosts == 3 else [], {name: ends[name] for name in names})
    return run
