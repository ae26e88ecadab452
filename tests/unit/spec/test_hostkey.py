"""A host key is pinned only by a fingerprint that somebody compared."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.spec import hostkey
from kit.spec.init import host_name, parse_place
from tests.hosts.build import facts


@pytest.fixture
def scanned(tmp_path: Path) -> tuple[str, str]:
    """(a line as ssh-keyscan prints it, the fingerprint as ssh-keygen tells it) of a new key."""
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    public = key.with_suffix(".pub").read_text().split()
    told = subprocess.run(["ssh-keygen", "-lf", str(key)], capture_output=True, text=True, check=True).stdout.split()[1]
    return f"192.0.2.1 {public[0]} {public[1]}\n", told


def test_the_fingerprint_is_ssh_keygens(scanned: tuple[str, str]) -> None:
    [key] = hostkey.parse("# 192.0.2.1:22 SSH-2.0-OpenSSH_9.2\n" + scanned[0])
    assert key.fingerprint == scanned[1]
    assert hostkey.accept([key], scanned[1], "x") == key
    assert key.text == " ".join(scanned[0].split()[1:])


def test_the_preferred_kind_comes_first_and_rubbish_is_left_out() -> None:
    blob = base64.b64encode(b"x" * 40).decode()
    text = f"h ssh-rsa {blob}\nh ssh-ed25519 {blob}\nh ssh-dss {blob}\nh ssh-ed25519 !!!\nh\n\n"
    assert [key.kind for key in hostkey.parse(text)] == ["ssh-ed25519", "ssh-rsa"]


def test_no_fingerprint_no_trust(scanned: tuple[str, str]) -> None:
    with pytest.raises(KitError) as caught:
        hostkey.accept(hostkey.parse(scanned[0]), "", "192.0.2.1")
    assert caught.value.exit_code is ExitCode.USAGE
    assert caught.value.failures[0].code == "ssh.host_key_unconfirmed"
    assert scanned[1] in caught.value.failures[0].found


def test_another_fingerprint_is_another_machine(scanned: tuple[str, str]) -> None:
    with pytest.raises(KitError) as caught:
        hostkey.accept(hostkey.parse(scanned[0]), "SHA256:other", "192.0.2.1")
    assert caught.value.exit_code is ExitCode.UNREACHABLE
    assert caught.value.failures[0].code == "ssh.host_key"


def test_nobody_answers() -> None:
    with pytest.raises(KitError) as caught:
        hostkey.scan("127.0.0.1", 1)
    assert caught.value.failures[0].code == "ssh.unreachable"


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("ops@192.0.2.1", ("ops", "192.0.2.1", 22)),
        ("ops@node.example:2222", ("ops", "node.example", 2222)),
        ("ops@[2001:db8::1]", ("ops", "2001:db8::1", 22)),
        ("ops@[2001:db8::1]:2222", ("ops", "2001:db8::1", 2222)),
    ],
)
def test_places(text: str, place: tuple[str, str, int]) -> None:
    assert parse_place(text) == place


@pytest.mark.parametrize("text", ["192.0.2.1", "@192.0.2.1", "ops@", "ops@2001:db8::1", "ops@a:b", "a@b@c:22:1"])
def test_places_that_are_none(text: str) -> None:
    with pytest.raises(KitError):
        parse_place(text)


def test_the_hosts_own_name_is_made_to_fit() -> None:
    assert host_name("", facts({"host.hostname": "Node_7.example.org"})) == "node-7"
    assert host_name("mine", facts()) == "mine"
    with pytest.raises(KitError):
        host_name("", facts({"host.hostname": {"unknown": "x"}}))
