"""The guard finds keys and tokens, and does not cry at what a host's facts hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.errors import KitError
from kit.record.guard import redact, redact_argv, redact_document, secrets_in
from kit.record.store import Run

# Put together here, so that no scanner takes this file for a leak.
SECRETS = {
    "private key": "-----BEGIN " + "OPENSSH PRIVATE KEY-----\nb3BlbnNzaA==\n-----END OPENSSH PRIVATE KEY-----",
    "GitHub token": "ghp_" + "A1b2" * 9,
    "Hugging Face token": "hf_" + "Ab1" * 12,
    "NVIDIA API key": "nvapi-" + "x1Y2" * 10,
    "AWS access key": "AKIA" + "ABCDEFGH12345678",
    "API key": "sk-" + "abc123" * 5,
    "JSON web token": "eyJhbGciOiJI" + ".eyJzdWIiOiIx" + ".SflKxwRJSMeK",
    "bearer token": "Bearer " + "abc123def456ghi789",
    "basic credential": "Authorization: Basic " + "dXNlcjpwYXNz",
    "password in a URL": "https://user:" + "hunter22@example.org/",
    "crypted password": "$6$salt$" + "abcdefghijklmnopqrstuvwxyz",
    "named secret": "registry_password = " + "hunter22",
}


@pytest.mark.parametrize("kind", SECRETS)
def test_each_shape_is_found_redacted_and_refused(kind: str, tmp_path: Path) -> None:
    text = f"before {SECRETS[kind]} after"
    assert [s.kind for s in secrets_in({"a": [text]})] == [kind]
    assert SECRETS[kind] not in redact(text)
    assert not secrets_in(redact(text))
    room = Run.create("plan", [], tmp_path)
    with pytest.raises(KitError) as caught:
        room.put("facts", {"a": [text]})
    assert caught.value.failures[0].code == "record.secret"
    assert SECRETS[kind] not in str(caught.value)
    assert not (room.path / "facts.json").exists()


@pytest.mark.parametrize("key", ["password", "api_key", "apiKey", "HF_TOKEN", "client-secret", "x.private_key"])
def test_a_name_that_says_secret_is_enough(key: str) -> None:
    assert [s.path for s in secrets_in({"a": {key: "plain"}})] == [f".a.{key}"]
    assert redact_document({key: "plain"}) == {key: "<redacted: named secret>"}
    assert not secrets_in(redact_document({key: "plain"}))


@pytest.mark.parametrize("key", ["tokenizer", "secret_count", "password_authentication", "tokens", "key"])
def test_a_name_that_only_sounds_like_one_is_not(key: str) -> None:
    assert not secrets_in({key: "plain"})


@pytest.mark.parametrize(
    "text",
    [
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ1Yh0v3u0",
        "BOOT_IMAGE=/vmlinuz root=UUID=1f0c7c1e ro quiet intel_idle.max_cstate=1",
        "PasswordAuthentication no\nPermitRootLogin no",
        "GPU-5a1f2b3c-0000-1111-2222-333344445555",
        "-----BEGIN PUBLIC KEY-----\nabc\n-----END PUBLIC KEY-----",
        "a" * 64,
        "token: null",
        "tokenizer: 12, detokenizer: 14",
        "basic virtualization-support",
        "http://127.0.0.1:30000/health",
        "task-0123456789abcdefghijkl",
    ],
)
def test_what_facts_and_specs_hold_passes(text: str) -> None:
    assert not secrets_in(text)
    assert redact(text) == text


def test_argv_is_recorded_without_secrets(tmp_path: Path) -> None:
    argv = ["invoke", "x", "--token", "plain", "--api-key=plain", "--host", "alpha", SECRETS["GitHub token"]]
    assert redact_argv(argv) == (
        "invoke", "x", "--token", "<redacted: option value>", "--api-key=<redacted: option value>", "--host", "alpha",
        "<redacted: GitHub token>",
    )  # fmt: skip
    run = Run.create("x", argv, tmp_path)
    text = (run.path / "run.json").read_text()
    assert "plain" not in text
    assert "ghp_" not in text


def test_a_recap_is_redacted_and_kept(tmp_path: Path) -> None:
    path = Run.create("provision", [], tmp_path).host("alpha").put("recap", {"msg": f"x {SECRETS['GitHub token']}"})
    assert path.read_text().split() == ["{", '"msg":', '"x', "<redacted:", "GitHub", 'token>"', "}"]


def test_an_event_is_redacted_and_kept(tmp_path: Path) -> None:
    room = Run.create("plan", [], tmp_path)
    room.event({"host": "alpha", "msg": f"x {SECRETS['Hugging Face token']}", "password": "p4ss", "n": 1})
    assert (room.path / "events.jsonl").read_text() == (
        '{"host": "alpha", "msg": "x <redacted: Hugging Face token>", "password": "<redacted: named secret>", "n": 1}\n'
    )
