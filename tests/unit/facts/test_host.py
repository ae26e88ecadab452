"""Readers of the probe: text in, facts out; and what a reader does when it cannot read."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from kit.facts.host import bundle, cores, cpus, main, memory, network, packages, read, services, speed_select, system
from kit.facts.model import Facts, parse
from kit.facts.request import ProbeRequest
from kit.facts.unknown import is_known

HOST = Path(bundle.__file__).parent

INFO = """Intel(R) Speed Select Technology
Executing on CPU model:173[0xad]
 package-0
  powerdomain-0
    die-0
      cpu-0
        perf-profile-level-0
          cpu-count:64
          speed-select-turbo-freq:{tf}
          speed-select-base-freq:unsupported
          speed-select-core-power:{cp}
        perf-profile-level-1
          speed-select-turbo-freq:unsupported
          speed-select-core-power:unsupported
 package-1
  powerdomain-0
    die-0
      cpu-64
        perf-profile-level-0
          speed-select-turbo-freq:{tf}
          speed-select-core-power:{cp}
"""
LEVEL = " package-0\n  die-0\n    cpu-0\n      get-config-current_level:0\n"
BUCKETS = """Intel(R) Speed Select Technology
 package-0
  powerdomain-0
    cpu-0
      speed-select-turbo-freq-properties
        bucket-0
          high-priority-cores-count:8
          high-priority-max-frequency(MHz):4600
        bucket-1
          high-priority-cores-count:16
          high-priority-max-frequency(MHz):4200
        speed-select-turbo-freq-clip-frequencies
          low-priority-max-frequency(MHz):2300
  powerdomain-1
    cpu-32
      speed-select-turbo-freq-properties
        bucket-0
          high-priority-cores-count:8
          high-priority-max-frequency(MHz):4600
"""
ASSOC = """ package-0
  die-0
    cpu-3
      get-assoc
        clos:0
 package-0
  die-0
    cpu-4
      get-assoc
        clos:3
 package-1
  die-0
    cpu-65
      get-assoc
        clos:0
"""


def test_a_list_of_cpus() -> None:
    assert read.numbers("0-3,8\n") == [0, 1, 2, 3, 8]
    assert read.numbers("") == []
    assert read.mask("00000000,80000005") == [0, 2, 31]
    with pytest.raises(read.Unreadable):
        read.numbers("0-3,x")


@pytest.mark.parametrize(
    ("reader", "reason"),
    [
        (lambda: read.text("/no/such/file"), "no such file: /no/such/file"),
        (lambda: read.number("/etc/hostname"), "not a number"),
        (lambda: read.output(["no-such-tool"]), "no-such-tool is not installed"),
        (lambda: read.output(["sleep", "9"], 0.2), "sleep 9 did not answer in 0.2 s"),
        (lambda: read.output(["false"]), "false ended with status 1: no message"),
        (lambda: {}["key"], "not understood: KeyError: 'key'"),
    ],
)
def test_a_failure_is_one_unknown_with_its_reason(reader: Any, reason: str) -> None:
    found = read.fact(reader)
    assert read.is_unknown(found)
    assert reason in found["unknown"]


def test_a_tool_that_hangs_is_killed_with_its_children() -> None:
    mark = f"{time.time():.6f}"
    began = time.monotonic()
    with pytest.raises(read.Unreadable):
        read.run(["sh", "-c", f"sleep 30 & sleep 30; : {mark}"], 0.3)
    assert time.monotonic() - began < 3
    time.sleep(0.1)
    running = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert mark not in running


@pytest.mark.parametrize(
    ("tf", "cp", "supported", "enabled"),
    [
        ("enabled", "enabled", True, True),
        ("disabled", "disabled", True, False),
        ("disabled", "enabled", True, False),
        ("unsupported", "disabled", False, False),
    ],
)
def test_priority_core_turbo(monkeypatch: pytest.MonkeyPatch, tf: str, cp: str, supported: bool, enabled: bool) -> None:
    said: list[tuple[str, ...]] = []

    def run(command: list[str], timeout_s: float) -> tuple[int, str, str]:
        said.append(tuple(command[1:]))
        words = {"get-config-current-level": LEVEL, "get-assoc": ASSOC}.get(command[-1])
        if words is None:
            words = BUCKETS if "turbo-freq" in command else INFO.format(tf=tf, cp=cp)
        return 0, "", words

    monkeypatch.setattr(speed_select, "run", run)
    monkeypatch.setattr(speed_select, "find_program", lambda name: "/usr/bin/" + name)
    logical = [{"cpu": n, "siblings": [n % 128, n % 128 + 128]} for n in range(256)]
    found = speed_select.read(logical)
    assert (found["supported"], found["enabled"], found["bucket_cores"], found["bucket_mhz"]) == (supported, enabled, 8, 4600)
    if enabled:
        assert found["priority_cpus"] == [3, 65, 131, 193]
        asked = [call for call in said if call[-1] == "get-assoc"]
        assert all(len(call[1].split(",")) <= 64 for call in asked) and len(asked) == 2
    else:
        assert "core power is off" in found["priority_cpus"]["unknown"]


def test_a_speed_select_that_says_something_else_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_select, "run", lambda *_: (1, "", "Intel(R) Speed Select Technology\nInvalid CPU model (85)\n"))
    monkeypatch.setattr(speed_select, "find_program", lambda name: "/usr/bin/" + name)
    found = speed_select.read([])
    assert found.pop("tool") is True
    assert all("Invalid CPU model" in value["unknown"] for value in found.values())


@pytest.mark.parametrize(
    ("files", "cgroup", "limit"),
    [
        ({"cgroup.controllers": "", "a/memory.max": "max", "a/b/memory.max": "1073741824"}, "0::/a/b", 1073741824),
        ({"cgroup.controllers": "", "a/memory.max": "2048", "a/b/memory.max": "max"}, "0::/a/b", 2048),
        ({"cgroup.controllers": "", "memory.max": "4096"}, "0::/", 4096),
        ({"cgroup.controllers": ""}, "0::/", None),
        ({"memory/x/memory.limit_in_bytes": "9223372036854771712"}, "5:memory:/x\n1:name=systemd:/y", None),
        (
            {"memory/x/memory.limit_in_bytes": "4096", "memory/memory.limit_in_bytes": "9223372036854771712"},
            "5:cpu,memory:/x",
            4096,
        ),
    ],
)
def test_the_smallest_limit_on_the_way_up(tmp_path: Path, files: dict[str, str], cgroup: str, limit: int | None) -> None:
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text)
    (tmp_path / "own").write_text(cgroup)
    assert memory.cgroup_limit(str(tmp_path / "fs"), str(tmp_path / "own")) == limit


def test_no_memory_controller_is_not_no_limit(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("1:name=systemd:/")
    with pytest.raises(read.Unreadable):
        memory.cgroup_limit(str(tmp_path), str(tmp_path / "own"))


@pytest.mark.parametrize(
    ("fstab", "swap"),
    [
        ("/dev/sda1 none swap sw 0 0\n", True),
        ("# /dev/sda1 none swap sw 0 0\n", False),
        ("/dev/sda1 none swap noauto 0 0", False),
    ],
)
def test_swap_in_fstab(tmp_path: Path, fstab: str, swap: bool) -> None:
    (tmp_path / "fstab").write_text(fstab)
    assert memory.swap_in_fstab(str(tmp_path / "fstab")) is swap


def test_limits_come_from_a_live_process() -> None:
    found = memory.limits("self", os.getpid())
    assert isinstance(found["nofile"], int) and found["memlock_kib"] >= -1
    assert "unknown" in memory.limits("nobody", 2**22 + 1)["nofile"]


def test_a_path_that_is_not_there_stands_for_its_file_system(tmp_path: Path) -> None:
    there, later = memory.disk(str(tmp_path)), memory.disk(str(tmp_path / "not" / "yet"))
    assert {k: v for k, v in later.items() if k not in ("path", "free_kib")} == {
        k: v for k, v in there.items() if k not in ("path", "free_kib")
    }


def test_what_a_file_is_and_what_of_it_is_kept(tmp_path: Path) -> None:
    public, secret = tmp_path / "public", tmp_path / "secret"
    public.write_text("text\n")
    public.chmod(0o644)
    secret.write_text("token\n")
    secret.chmod(0o640)
    found = system.file(str(public))
    assert (found["content"], found["mode"], found["sha256"]) == ("text\n", "0644", hashlib.sha256(b"text\n").hexdigest())
    kept = json.dumps(system.file(str(secret)))
    assert "token" not in kept and hashlib.sha256(b"token\n").hexdigest() in kept
    assert system.file(str(tmp_path / "none"))["exists"] is False
    os.mkfifo(tmp_path / "pipe")
    assert system.file(str(tmp_path / "pipe"))["sha256"] == {"unknown": "not a regular file"}


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "vm/../x.y", "vm", "vm.", "", "a.b\n"])
def test_a_sysctl_name_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(read.Unreadable):
        system.sysctl(name)


def test_kernels_are_ordered_by_number() -> None:
    releases = ["6.1.0-9-amd64", "6.1.0-13-amd64", "6.12.57+deb13-amd64", "5.15.0-100-generic"]
    assert sorted(releases, key=system.kernel_order)[::-1] == [
        "6.12.57+deb13-amd64",
        "6.1.0-13-amd64",
        "6.1.0-9-amd64",
        "5.15.0-100-generic",
    ]


@pytest.mark.parametrize(
    ("status", "state"),
    [
        ("nvidia/580.95.05, 6.8.0-45-generic, x86_64: installed\n", "installed"),
        ("nvidia/580.95.05, 6.8.0-45-generic, x86_64: built\n", "missing"),
        ("nvidia/580.95.05, 6.8.0-44-generic, x86_64: installed\n", "missing"),
        ("nvidia, 535.1, 6.8.0-45-generic, x86_64: installed (original_module exists)\n", "installed"),
        ("zfs/2.2, 6.8.0-45-generic, x86_64: installed\n", "not_used"),
    ],
)
def test_dkms_of_the_next_kernel(monkeypatch: pytest.MonkeyPatch, status: str, state: str) -> None:
    monkeypatch.setattr(system, "find_program", lambda name: "/usr/sbin/dkms")
    monkeypatch.setattr(system, "output", lambda *_: status)
    assert system.dkms_state("6.8.0-45-generic") == state


def test_packages_held_and_absent() -> None:
    every = {"docker.io": {"version": "28-1", "held": True}, "bash": {"version": "5", "held": False}}
    found = packages.read(["docker.io", "bash", "gone"], every, {"docker.io": "29-1"})
    assert found["docker.io"] == {"version": "28-1", "held": True, "candidate": "29-1"}
    assert found["bash"]["candidate"] == {"unknown": "apt has no candidate"}
    assert found["gone"] == {"unknown": "not installed"}
    assert packages.read(["bash"], {"unknown": "no dpkg"}, {})["bash"] == {"unknown": "no dpkg"}
    assert packages.upstream("1:580.95.05-0ubuntu1") == "580.95.05"


def shown(**changes: str) -> dict[str, dict[str, str]]:
    values = {
        "LoadState": "loaded",
        "ActiveState": "active",
        "UnitFileState": "",
        "NeedDaemonReload": "no",
        "Result": "success",
        "ActiveEnterTimestampMonotonic": "12500000",
        "MainPID": "7",
    }
    return dict.fromkeys(services.ALWAYS, values | changes)


def test_whether_a_unit_starts_at_boot_is_read_from_disk_not_from_the_managers_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Enabled without a daemon-reload, as this kit does it: the manager goes on saying what it last read."""
    tool = tmp_path / "systemctl"
    tool.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        "show) printf 'LoadState=loaded\\nUnitFileState=disabled\\n\\nLoadState=not-found\\n' ;;\n"
        "list-unit-files) echo 'a.service  enabled  enabled' ;;\n"
        "esac\n"
    )
    tool.chmod(0o755)
    monkeypatch.setattr(read, "find_program", lambda name: str(tmp_path / name))
    found = services.show(["a.service", "gone.service"])
    assert [one["UnitFileState"] for one in found.values()] == ["enabled", ""]
    tool.write_text(tool.read_text().replace("echo 'a.service  enabled  enabled'", "exit 1"))
    assert services.at_boot(["gone.service"]) == {}
    tool.write_text(tool.read_text().replace("exit 1", "echo no bus >&2; exit 1"))
    with pytest.raises(read.Unreadable, match="no bus"):
        services.at_boot(["a.service"])


def test_units() -> None:
    one = services.read([services.DOCKER], shown())[services.DOCKER]
    assert (one["active"], one["needs_daemon_reload"], one["since_boot_s"]) == ("active", False, 12.5)
    assert one["enabled"] == {"unknown": "systemctl gives no UnitFileState"}
    assert services.main_pid(shown(), services.DOCKER) == 7
    blind = services.read([services.DOCKER], {"unknown": "no bus"})[services.DOCKER]
    assert all(value == {"unknown": "no bus"} for value in blind.values())


@pytest.mark.parametrize(
    ("marker", "joined"),
    [
        (None, False),
        ('{"state": "joined", "router": "r"}', True),
        ('{"state": "draining"}', True),
        ('{"state": "left"}', False),
        ("half a doc", {"unknown": "not understood"}),
        ("{}", {"unknown": "not understood"}),
    ],
)
def test_membership_never_takes_not_readable_for_not_joined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, marker: str | None, joined: Any
) -> None:
    path = tmp_path / "membership.json"
    if marker is not None:
        path.write_text(marker)
    monkeypatch.setattr(services, "MARKER", str(path))
    found = services.membership(services.read(services.ALWAYS, shown(ActiveState="inactive")))
    if isinstance(joined, dict):
        assert joined["unknown"] in found["joined"]["unknown"]
    else:
        assert found["joined"] is joined
    assert found["engine_active"] is False


@pytest.mark.parametrize(
    ("joined", "engine", "reason"),
    [
        (False, False, None),
        (True, False, "it is joined to a router"),
        (False, True, "its engine runs"),
        ({"unknown": "x"}, False, "its router membership is not known: x"),
        (False, {"unknown": "x"}, "its engine state is not known: x"),
    ],
)
def test_only_a_host_known_to_be_free_is_loaded(joined: Any, engine: Any, reason: str | None) -> None:
    assert cores.why_not({"joined": joined, "engine_active": engine, "marker": ""}) == reason


def test_cdi_names_of_json_and_of_nvidia_ctks_yaml() -> None:
    yaml = (
        "---\ncdiVersion: 0.5.0\ncontainerEdits:\n  hooks:\n  - hookName: createContainer\n"
        'devices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n      name: no\n  name: "0"\n'
        "- name: all\n  containerEdits: {}\nkind: nvidia.com/gpu\n"
    )
    assert network.cdi_names(yaml) == ["nvidia.com/gpu=0", "nvidia.com/gpu=all"]
    document = json.dumps({"kind": "nvidia.com/gpu", "devices": [{"name": "0"}]})
    assert network.cdi_names(document) == ["nvidia.com/gpu=0"]


def test_docker_is_not_asked_when_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "docker_info", lambda: pytest.fail("a socket unit would start it"))
    found = network.docker(services.read([services.DOCKER], shown(ActiveState="inactive")))
    assert set(map(str, found.values())) == {str({"unknown": "docker.service is inactive"})}


def test_a_listening_socket_is_seen() -> None:
    with socket.socket() as four, socket.socket(socket.AF_INET6) as six:
        four.bind(("127.0.0.1", 0))
        six.bind(("::1", 0))
        four.listen()
        six.listen()
        found = network.listening()
        assert f"127.0.0.1:{four.getsockname()[1]}" in found
        assert f"[::1]:{six.getsockname()[1]}" in found


@pytest.fixture
def irqs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """/proc/irq as Linux 6.18 shows it on a machine with virtio devices: number, mode, set, effective, handler."""
    table = """
        24 644 0-1 0 ACPI:Ged
        28 644 0 1 virtio0-config
        36 444 0-1 1 virtio1-req.0
        41 644 4 6 mlx5_comp3
        42 644 5 5 mlx5_comp4
        43 644 7 7 -
    """
    for number, mode, listed, effective, handler in (line.split() for line in table.split("\n") if line.strip()):
        folder = tmp_path / number
        (folder / handler if handler != "-" else folder).mkdir(parents=True)
        (folder / "smp_affinity_list").write_text(f"{listed}\n")
        (folder / "smp_affinity_list").chmod(int(mode, 8))
        (folder / "effective_affinity_list").write_text(f"{effective}\n")
    (tmp_path / "default_smp_affinity").write_text("ff\n")
    monkeypatch.setattr(cpus, "IRQS", str(tmp_path))
    monkeypatch.setattr(cpus, "IRQ_RECORD", str(tmp_path / "cpu.json"))
    return tmp_path


def record_refused(table: Path, refused: dict[str, list[str]]) -> None:
    """As the boot unit leaves it."""
    document = {"boot_id": "now", "read_back": {"interrupts": {"refused": refused}}}
    (table / "cpu.json").write_text(json.dumps(document))


def test_an_interrupt_is_judged_by_where_it_is_set_to_go_and_one_that_is_read_only_by_nothing(irqs: Path) -> None:
    """28 was moved and has not fired since; 36 is the kernel's own; 43 has no handler."""
    assert cpus.interrupts("now") == {"cpus": [0, 1, 4, 5], "immovable": 1}


def test_what_the_boot_unit_could_not_move_counts_in_its_boot_and_for_its_handlers_only(irqs: Path) -> None:
    """Before Linux 6.12 the mode is 0644 for all: only the refused write tells."""
    record_refused(irqs, {"42": ["mlx5_comp4"], "41": ["nvme0q3"]})
    assert cpus.interrupts("now") == {"cpus": [0, 1, 4], "immovable": 2}
    assert cpus.interrupts("another boot") == {"cpus": [0, 1, 4, 5], "immovable": 1}


def probe(request: ProbeRequest, cwd: Path | None = None) -> tuple[Facts, dict[str, Any]]:
    done = subprocess.run(
        ["python3", "-I", "-", request.encoded()],
        input=bundle.script("main"),
        capture_output=True,
        timeout=60,
        check=True,
        cwd=cwd,
    )
    raw = json.loads(done.stdout)
    return parse(raw), raw


def test_the_whole_probe_here_fits_its_model(tmp_path: Path) -> None:
    marked = tmp_path / "marked"
    marked.write_text("x")
    (tmp_path / "json.py").write_text("raise SystemExit('a module of the working directory was imported')")
    request = ProbeRequest(
        packages=("no-such-package",),
        services=("no-such.service",),
        sysctls=("vm.swappiness",),
        files=(str(marked),),
        users=("root", "no-such-user"),
        disks=(str(tmp_path),),
    )
    facts, _ = probe(request, tmp_path)
    assert facts.users["root"].startswith("0:0:") if is_known(facts.users["root"]) else False
    assert not is_known(facts.users["no-such-user"]) and not is_known(facts.packages["no-such-package"])
    assert set(facts.services) == {"no-such.service"}
    assert facts.files[str(marked)].exists
    assert facts.host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert facts.cpu.logical
    assert any(one.usable for one in facts.cpu.logical)


def test_a_request_with_hostile_values_is_only_data(tmp_path: Path) -> None:
    hostile = ("$(touch x)", "--help", "-o=x", "a b\n", "../../etc/passwd")
    facts, _ = probe(
        ProbeRequest(packages=hostile, services=("a;b.service",), sysctls=hostile, users=hostile, files=hostile, disks=("/",)),
        tmp_path,
    )
    assert not any(map(is_known, facts.sysctls.values()))
    assert not any(map(is_known, facts.packages.values()))
    assert list(tmp_path.iterdir()) == []


def test_an_old_or_incomplete_python_says_so() -> None:
    parsed = bundle.START.replace("(3, 9)", "(9, 0)")
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"SOURCES = PACKAGES = {{}}\n{parsed}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert "9 or later is needed" in done.stderr or "is needed" in done.stderr


@pytest.mark.parametrize("path", sorted(HOST.glob("*.py")), ids=lambda p: p.stem)
def test_modules_of_the_host_are_python_39_and_need_nothing_else(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    for node in ast.walk(tree):
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            own = name.startswith(bundle.PACKAGE)
            assert own or name.split(".")[0] in sys.stdlib_module_names, name


def test_the_request_travels_whole() -> None:
    request = ProbeRequest(files=("/a b", "/ü"), nvml_timeout_s=3)
    assert ProbeRequest.model_validate(main.request_from(request.encoded())) == request
