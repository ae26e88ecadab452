"""From a fresh simulated host to all kept, again after breaking it, after a kill, and after a reboot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit import paths
from kit.apply import ansible, hostcheck
from kit.apply.variables import role_variables
from kit.cores.assign import assign
from kit.cores.decide import decide
from kit.plan.model import Action, Step
from kit.record.store import Run
from kit.sim import flow
from tests.sim import applying

OnHost = Callable[..., "subprocess.CompletedProcess[str]"]
FOLDERS = (
    "/etc/b300kit /usr/local/lib/b300kit /etc/docker/daemon.json /etc/systemd/system"
    " /etc/security/limits.d /etc/sysctl.d /etc/apt/apt.conf.d"
)
STATE = (
    f"sudo find {FOLDERS} -type f ! -name '*~' -exec sha256sum {{}} + | sort -k2; apt-mark showhold;"
    " systemctl list-unit-files --state=enabled --no-legend 'b300kit-*';"
    " sudo nft --stateless list table inet b300kit; getent passwd b300kit"
)


@pytest.fixture(scope="module")
def node(_sim_possible: None) -> Iterator[str]:
    """One host for the tests of this file, in their order."""
    name = f"t{os.getpid()}-converge"
    flow.up(name, "b300-4")
    yield name
    flow.down(name)


def outside(name: str, folder: Path) -> hostcheck.Outside:
    """The outside suite against a record as `invoke verify` leaves it."""
    it, facts, plan = applying.look(name)
    host = Run.create("verify", [], folder).host(name)
    host.put("spec", it.spec)
    host.put("plan", plan)
    host.put("assignment", assign(it.spec.cpu, decide(it.spec.cpu, facts.cpu), facts))
    return hostcheck.run(it, host.path)


def test_a_run_killed_at_once_and_a_run_killed_later_end_in_the_state_of_a_whole_run(
    node: str, fresh_sim_host: Callable[[str], str], on_host: OnHost, tmp_path: Path
) -> None:
    other = fresh_sim_host("b300-4")
    whole = applying.apply(other, tmp_path / "whole")
    assert whole.failures == ()
    for cut, after in enumerate(("memory: Start the units", "container_engine: Write the files")):
        killed_after(node, tmp_path / f"cut{cut}", after)
    assert applying.pending(node), "killed before the end, yet nothing is left to do"
    again = applying.apply(node, tmp_path / "again")
    assert again.failures == ()
    assert applying.pending(node) == {}
    assert on_host(node, STATE).stdout == on_host(other, STATE).stdout


def killed_after(name: str, run_dir: Path, task: str) -> None:
    """Apply in a process of its own and kill -9 it when ``task`` has ended; no Ansible may live on."""
    command = [sys.executable, "-m", "tests.sim.applying", name, str(run_dir)]
    with subprocess.Popen(command, cwd=paths.ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if task in line:
                os.kill(process.pid, signal.SIGKILL)
                break
        else:
            pytest.fail(f"{task!r} never came")
    deadline = time.monotonic() + 10
    while alive(str(run_dir)):
        assert time.monotonic() < deadline, f"Ansible goes on without its parent: {alive(str(run_dir))}"
        time.sleep(0.1)


def alive(word: str) -> list[str]:
    """Command lines of processes that name ``word``."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text:
            found.append(text)
    return found


def test_the_outside_suite_agrees(node: str, tmp_path: Path) -> None:
    found = outside(node, tmp_path)
    assert found.failures == ()
    assert found.summary()["passed"] >= 20
    assert found.skipped == ()


BREAK = {
    "packages.hold.containerd": "apt-mark unhold containerd",
    "cpu.governor": "echo powersave > /sys/devices/system/cpu/cpu5/cpufreq/scaling_governor",
    "cpu.cstates": "echo 0 > /sys/devices/system/cpu/cpu3/cpuidle/state3/disable",
    "cpu.priority_core_turbo": "intel-speed-select turbo-freq disable",
    "firewall.table": "nft delete table inet b300kit",
    "gpu.config_file": "echo x >> /etc/b300kit/gpu.json",
    "gpu.persistence": "nvidia-smi -pm 0",
    "docker.service": "systemctl stop docker",
    "docker.daemon_file": "rm /etc/docker/daemon.json",
    "memory.thp": "echo always > /sys/kernel/mm/transparent_hugepage/enabled",
    "node.data_dir": "chmod 777 /var/lib/b300kit",
}


def test_what_is_broken_by_hand_is_shown_seen_from_outside_and_put_back(node: str, on_host: OnHost, tmp_path: Path) -> None:
    before = on_host(node, STATE).stdout
    for command in BREAK.values():
        on_host(node, f"sudo sh -c '{command}'")
    drift = applying.pending(node)
    assert set(BREAK) <= set(drift)
    assert outside(node, tmp_path / "broken").summary()["failed"] >= 7
    assert applying.apply(node, tmp_path / "run").failures == ()
    assert applying.pending(node) == {}
    assert outside(node, tmp_path / "mended").failures == ()
    assert on_host(node, STATE).stdout == before


def test_a_changed_file_is_kept_beside_the_new_one(node: str, on_host: OnHost) -> None:
    assert "x" in on_host(node, "sudo sh -c 'tail -n 1 /etc/b300kit/gpu.json.*~'").stdout.splitlines()


def test_a_rule_changed_by_hand_is_noticed(node: str, on_host: OnHost, tmp_path: Path) -> None:
    on_host(node, "sudo nft add element inet b300kit engine_v4 { 203.0.113.0/24 }")
    assert list(applying.pending(node)) == ["firewall.table"]
    assert applying.apply(node, tmp_path).failures == ()
    assert applying.pending(node) == {}


@pytest.mark.parametrize("command", ["nvidia-smi -i 2 -lgc 1000", "nvidia-smi -i 2 -rgc"])
def test_a_clock_moved_by_hand_is_noticed(node: str, on_host: OnHost, tmp_path: Path, command: str) -> None:
    """What the boot unit recorded is no proof: a slow GPU among four serves, at its own speed."""
    on_host(node, f"sudo {command}")
    assert list(applying.pending(node)) == ["gpu.sm_clock"]
    assert applying.apply(node, tmp_path).failures == ()
    assert applying.pending(node) == {}


def test_a_template_in_a_file_of_the_host_stays_text(node: str, on_host: OnHost, tmp_path: Path) -> None:
    """It comes back with the merged daemon.json; Ansible must not run it on the control machine."""
    hostile = "a={{ 6 * 7 }} {% if x"
    edit = f"d['labels'] = ['{hostile}']; d['live-restore'] = False; json.dump(d, open(p, 'w'))"
    on_host(node, f"""sudo python3 -c "import json; p = '/etc/docker/daemon.json'; d = json.load(open(p)); {edit}" """)
    assert applying.apply(node, tmp_path / "run").failures == ()
    assert applying.pending(node) == {}
    assert hostile in on_host(node, "cat /etc/docker/daemon.json").stdout
    on_host(node, "sudo rm /etc/docker/daemon.json")
    assert applying.apply(node, tmp_path / "clean").failures == ()


def test_a_saved_plan_runs_with_plain_ansible_playbook(node: str, on_host: OnHost, tmp_path: Path) -> None:
    import json

    on_host(node, "sudo apt-mark unhold containerd")
    saved = tmp_path / "apply.json"
    saved.write_text(json.dumps(role_variables(applying.look(node)[2])))
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-playbook"), "-i", str(paths.cache_dir() / "fleet"),
            str(paths.ROOT / "playbooks" / "apply.yml"), "-l", node, "-e", f"@{saved}",
        ],
        cwd=paths.ROOT, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "changed=1" in done.stdout
    assert applying.pending(node) == {}


def test_units_that_are_both_to_start_again_and_disabled_are_whole_after_one_run(
    node: str, on_host: OnHost, tmp_path: Path
) -> None:
    """They are enabled without a daemon-reload, which the manager's memory does not show."""
    on_host(node, "sudo rm -rf /etc/b300kit; sudo systemctl disable b300kit-gpu b300kit-firewall 2>&1")
    applying.apply(node, tmp_path)
    assert applying.pending(node) == {}


def test_a_masked_unit_is_refused_before_anything_is_applied(node: str, on_host: OnHost) -> None:
    on_host(node, "sudo systemctl mask docker 2>&1")
    try:
        refused = {s.id: s.next for s in applying.look(node)[2].of(Action.REFUSE)}
    finally:
        on_host(node, "sudo systemctl unmask docker 2>&1")
    assert "systemctl unmask docker.service" in refused["docker.service"]
    assert applying.pending(node) == {}


def test_a_reboot_is_proven_by_the_boot_id_and_everything_is_set_again(node: str, tmp_path: Path) -> None:
    it, before, plan = applying.look(node)
    reboot = Step(id="reboot.host", action=Action.REBOOT, reason="the test asks for it", role="reboot")
    plan = plan.model_copy(update={"steps": tuple(reboot if s.id == "reboot.host" else s for s in plan.steps)})
    assert ansible.apply({it: plan}, tmp_path / "no", lambda _: None, 1)[node].changed == 0
    result = ansible.apply({it: plan}, tmp_path / "yes", lambda _: None, 1, reboot=True)[node]
    assert result.failures == ()
    after = applying.look(node)[1]
    assert after.host.boot_id != before.host.boot_id
    deadline = time.monotonic() + 30
    while left := applying.pending(node):
        assert time.monotonic() < deadline, left
        time.sleep(1)
