"""Keeps secrets out of records. Pure: text or a JSON-able document in, findings or redacted text out.

It knows the shapes of keys and tokens, so it is the last guard and not the first: secrets must not reach a document at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple


class _Shape(NamedTuple):
    """How one kind of secret looks."""

    kind: str
    hints: tuple[str, ...]
    """Lower-case text that every such secret holds: one plain search spares most texts the slow pattern."""
    pattern: re.Pattern[str]


_SECRET_WORDS = (
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "api_key",
    "api-key",
    "apikey",
    "private_key",
    "private-key",
    "privatekey",
)
_SHAPES = tuple(
    _Shape(kind, hints, re.compile(pattern))
    for kind, hints, pattern in (
        (
            "private key",
            ("private key",),
            r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----(?:[\s\S]*?-----END [A-Z0-9 ]+-----)?",
        ),
        ("PuTTY private key", ("putty-user-key-file",), r"PuTTY-User-Key-File-\d+:[^\n]*"),
        ("age secret key", ("age-secret-key",), r"AGE-SECRET-KEY-1[0-9A-Z]{20,}"),
        (
            "GitHub token",
            ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
            r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})",
        ),
        ("GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,}"),
        ("Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,}"),
        ("NVIDIA API key", ("nvapi-",), r"\bnvapi-[A-Za-z0-9_-]{30,}"),
        ("AWS access key", ("akia", "asia"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        ("Slack token", ("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("API key", ("sk-",), r"\bsk-[A-Za-z0-9_-]{20,}"),
        ("JSON web token", (".eyj",), r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
        ("bearer token", ("bearer ",), r"(?i)\bbearer (?=\S*\d)[A-Za-z0-9._~+/-]{16,}=*"),
        ("basic credential", ("basic ",), r"(?i)\bauthorization\W{1,4}basic [A-Za-z0-9+/]{8,}=*"),
        ("password in a URL", ("://",), r"\b[a-z][a-z0-9+.-]*://[^\s/:@]*:[^\s/@]+@"),
        ("crypted password", ("$",), r"\$(?:1|2[aby]|5|6|7|y|gy|argon2id?)\$[A-Za-z0-9./$=,+-]{20,}"),
        (
            "named secret",
            _SECRET_WORDS,
            r"(?i)(?<![A-Za-z0-9])(?:[A-Za-z0-9]{1,32}[_-]){0,6}(?:password|passwd|passphrase|secret|token|api[_-]?key|private[_-]?key)"
            r"[\"']?\s*[=:]\s*[\"']?(?![\"'\s<$(]|null\b|none\b|true\b|false\b)[^\s\"',;}]{4,}",
        ),
    )
)
_SECRET_NAME = re.compile(r"(?i)(?:^|[_.-])(?:password|passwd|passphrase|secret|token|api_?key|private_?key|access_?key)$")
_SECRET_OPTION = re.compile(
    r"(?i)^--?(?:[a-z0-9]+-)*(?:password|passwd|passphrase|secret|token|api-?key|private-?key|access-?key)$"
)
_SHORTEST = 10
"""Characters of the shortest text that any shape fits (``token=abcd``)."""
_REDACTED = re.compile(r"<redacted: [a-zA-Z ]+>")


class Secret(NamedTuple):
    """Something that looks like a secret. The value itself is never carried."""

    path: str
    """Where in the document, e.g. ``.host.kernel_command_line`` or ``line 3``."""
    kind: str


def secrets_in(document: Any) -> tuple[Secret, ...]:
    """Everything in a JSON-able document (or a text, or bytes) that looks like a private key or a token."""
    return tuple(_walk(document, ""))


def redact(text: str) -> str:
    """The text with everything that looks like a secret replaced by ``<redacted: kind>``."""
    for shape in _possible(text):
        text = shape.pattern.sub(f"<redacted: {shape.kind}>", text)
    return text


def redact_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line with secrets replaced, the value after an option such as ``--token`` included."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        option, separator, value = word.partition("=")
        if hide_next:
            shown.append("<redacted: option value>")
        elif separator and value and _SECRET_OPTION.match(option):
            shown.append(f"{option}=<redacted: option value>")
        else:
            shown.append(redact(word))
        hide_next = bool(not separator and _SECRET_OPTION.match(word))
    return tuple(shown)


def redact_document(document: Any) -> Any:
    """A JSON-able document with secrets replaced in its texts; mappings keep their keys and order."""
    if isinstance(document, str):
        return redact(document)
    if isinstance(document, Mapping):
        return {
            redact(str(key)): "<redacted: named secret>" if _named(key, value) else redact_document(value)
            for key, value in document.items()
        }
    if isinstance(document, Sequence) and not isinstance(document, bytes | bytearray):
        return [redact_document(value) for value in document]
    return document


@lru_cache(maxsize=8192)
def _possible(text: str) -> tuple[_Shape, ...]:
    """The shapes worth the slow search. Cached: a document repeats its keys and values for each of some hundred CPUs."""
    if len(text) < _SHORTEST:
        return ()
    lower = text.lower()
    return tuple(shape for shape in _SHAPES if any(hint in lower for hint in shape.hints))


def _named(key: Any, value: Any) -> bool:
    """Whether a mapping's key says that its value is a secret, and a value is there."""
    return isinstance(value, str) and bool(value) and not _REDACTED.fullmatch(value) and bool(_SECRET_NAME.search(str(key)))


def _walk(value: Any, path: str) -> list[Secret]:
    if isinstance(value, bytes | bytearray):
        return _walk(bytes(value).decode("utf-8", "replace"), path)
    if isinstance(value, str):
        return [
            Secret(f"{path or '.'} line {value.count(chr(10), 0, match.start()) + 1}", shape.kind)
            for shape in _possible(value)
            for match in shape.pattern.finditer(value)
        ]
    if value is None or isinstance(value, int | float):
        return []
    found: list[Secret] = []
    if isinstance(value, Mapping):
        for key, inner in value.items():
            # A secret used as a key must not be repeated in the path.
            place = f"{path}.{redact(str(key))}"
            found += _walk(str(key), f"{path} key")
            found += [Secret(place, "named secret")] if _named(key, inner) else _walk(inner, place)
    elif isinstance(value, Sequence):
        for index, inner in enumerate(value):
            found += _walk(inner, f"{path}[{index}]")
    return found
