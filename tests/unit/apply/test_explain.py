"""What modules say, as failures with a next step. The texts are what the tools print."""

from __future__ import annotations

import pytest

from kit.apply import explain


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Failed to lock apt for exclusive operation: Failed to lock directory /var/lib/apt/lists/", "apply.apt_locked"),
        ("E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 4242 (apt-get)", "apply.apt_locked"),
        ("dpkg: error: dpkg frontend lock was locked by another process with pid 4242", "apply.apt_locked"),
        ("[Errno 28] No space left on device: b'/etc/b300kit/.ansible_tmp'", "apply.disk_full"),
        ("[Errno 30] Read-only file system: '/etc/b300kit'", "apply.read_only"),
        ("b300kit-gpu.service did not restart: GPU 0: SM clock is 345 MHz", "apply.unit"),
        ("a.service did not restart: Failed to restart a.service: Unit a.socket is masked.", "apply.unit_masked"),
        ("The plan is stale or of another host: it is of n1, boot a; this is n1, boot b.", "apply.stale"),
        ("failed to validate: rc:1 error:syntax error", "apply.invalid_file"),
        ("something else", "apply.task"),
    ],
)
def test_known_words(said: str, code: str) -> None:
    found = explain.failed("n1", "packages", "Hold packages", said)
    assert found.code == code
    assert found.where == "n1: packages: Hold packages"
    assert found.found == said
    assert found.next


def test_message_joins_what_a_module_says_without_repeating() -> None:
    assert explain.message({"msg": "non-zero return code", "stderr": "boom\n", "stdout": "boom"}) == "non-zero return code: boom"
    assert explain.message({}) == "no message"
    assert len(explain.message({"msg": "x" * 9999})) == explain.LONGEST
