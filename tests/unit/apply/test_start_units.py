"""The module that starts units, against a systemctl that keeps a log: what is asked of the service manager, in which order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.apply import modules

SYSTEMCTL = """#!/bin/sh
echo "$*" >> {root}/log
case "$*" in
    is-enabled*) cat {root}/enabled.$2 2>/dev/null || {{ echo disabled; exit 1; }} ;;
    is-active*) cat {root}/active.$2 2>/dev/null || {{ echo inactive; exit 3; }} ;;
    show*) cat {root}/invocation 2>/dev/null ;;
    *enable*unable*) echo "Failed to enable unit: Unit file unable.service does not exist." >&2; exit 1 ;;
    restart*masked.service) echo "Failed to restart masked.service: Unit masked.service is masked." >&2; exit 1 ;;
    re*bad.service|start*bad.service) echo "Job for bad.service failed." >&2; exit 1 ;;
esac
"""
JOURNALCTL = """#!/bin/sh
echo "journalctl $*" >> {root}/log
test -e {root}/late || {{ touch {root}/late; exit 0; }}
cat {root}/journal
"""


class Manager:
    """A folder with a systemctl and a journalctl."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for name, text in (("systemctl", SYSTEMCTL), ("journalctl", JOURNALCTL)):
            (root / name).write_text(text.format(root=root))
            (root / name).chmod(0o755)
        (root / "log").touch()

    def run(self, **arguments: Any) -> dict[str, Any]:
        return modules.run(modules.START_UNITS, arguments, path=str(self.root))

    def asked(self) -> list[str]:
        """Commands that change something, in their order."""
        lines = (self.root / "log").read_text().splitlines()
        return [line for line in lines if not line.startswith(("is-", "show", "journalctl"))]


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path)


def test_enable_without_a_hidden_reload_then_read_again_then_restart_then_reload(manager: Manager) -> None:
    (manager.root / "enabled.b.service").write_text("enabled\n")
    (manager.root / "active.b.service").write_text("active\n")
    found = manager.run(daemon_reload=True, restart=["a.service"], reload=["b.service", "c.service"])
    assert (found["changed"], found["enabled"]) == (True, ["a.service", "c.service"])
    assert manager.asked() == [
        "--no-reload enable a.service c.service",
        "daemon-reload",
        "restart a.service",
        "reload b.service",
        "start c.service",
    ]


def test_the_service_manager_reads_again_only_when_asked(manager: Manager) -> None:
    manager.run(restart=["a.service"])
    assert "daemon-reload" not in manager.asked()


def test_a_unit_that_has_nothing_to_enable_is_not_enabled(manager: Manager) -> None:
    (manager.root / "enabled.a.service").write_text("static\n")
    assert manager.run(restart=["a.service"])["enabled"] == []
    assert manager.asked() == ["restart a.service"]


def test_a_unit_that_does_not_start_says_why_in_its_own_words_when_they_are_late(manager: Manager) -> None:
    (manager.root / "invocation").write_text("0123abcd\n")
    (manager.root / "journal").write_text("GPU 0: SM clock is 345 MHz\nGPU 1: SM clock is 345 MHz\n")
    found = manager.run(restart=["a.service", "bad.service", "c.service"])
    assert found["failed"] is True
    assert found["msg"] == "bad.service did not restart: GPU 0: SM clock is 345 MHz | GPU 1: SM clock is 345 MHz"
    assert manager.asked()[-1] == "restart bad.service"
    assert "_SYSTEMD_INVOCATION_ID=0123abcd" in (manager.root / "log").read_text()


def test_a_masked_unit_is_told_in_the_managers_words_not_in_those_of_an_earlier_run(manager: Manager) -> None:
    (manager.root / "invocation").write_text("0123\n")
    (manager.root / "journal").write_text("all is well\n")
    said = manager.run(restart=["masked.service"])["msg"]
    assert said == "masked.service did not restart: Failed to restart masked.service: Unit masked.service is masked."


def test_a_unit_that_never_ran_is_told_in_the_managers_words(manager: Manager) -> None:
    found = manager.run(restart=["bad.service"])
    assert found["msg"].startswith("bad.service did not restart: Job for bad.service failed")


def test_a_reload_that_fails_is_called_so(manager: Manager) -> None:
    (manager.root / "active.bad.service").write_text("active\n")
    assert manager.run(reload=["bad.service"])["msg"].startswith("bad.service did not reload: ")


def test_a_unit_that_cannot_be_enabled_is_not_started(manager: Manager) -> None:
    found = manager.run(restart=["unable.service"])
    assert found["failed"] is True
    assert found["msg"].startswith("systemctl --no-reload enable unable.service: Failed to enable")
    assert manager.asked() == ["--no-reload enable unable.service"]


@pytest.mark.parametrize(("arguments", "changed"), [({}, False), ({"restart": ["a.service"]}, True)])
def test_a_dry_run_asks_nothing(manager: Manager, arguments: dict[str, Any], changed: bool) -> None:
    assert manager.run(**arguments, _ansible_check_mode=True)["changed"] is changed
    assert (manager.root / "log").read_text() == ""


def test_nothing_asked_is_no_change(manager: Manager) -> None:
    assert json.dumps(manager.run()["changed"]) == "false"
    assert (manager.root / "log").read_text() == ""
