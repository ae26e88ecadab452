"""An SSH public key as a spec pins it, ``TYPE BASE64``: is it one, whole and with nothing in front? Pure.

A key that only looks like one matches no host, and ssh then says of every host that it changed its key.
"""

from __future__ import annotations

import base64
import binascii

_PARTS = {"ssh-ed25519": 2, "ssh-rsa": 3}
"""Length-prefixed fields of a key (RFC 4253, 8709); an ECDSA key has three: type, curve, point."""
_ED25519_BYTES = 32


def problem(text: str) -> str:
    """What is wrong with ``TYPE BASE64``; "" when it is a public key of that type."""
    kind, _, encoded = text.partition(" ")
    try:
        blob = base64.b64decode(encoded, validate=True)
    except binascii.Error as error:
        return f"base64 that does not decode ({error})"
    fields = _fields(blob)
    if not fields or fields[0] != kind.encode():
        return f"base64 that does not begin with the type {kind}"
    if len(fields) != _PARTS.get(kind, 3) or (kind == "ssh-ed25519" and len(fields[1]) != _ED25519_BYTES):
        return f"an incomplete {kind} key, or one with more behind it"
    return ""


def _fields(blob: bytes) -> list[bytes]:
    """The fields; empty when the lengths do not add up to the whole."""
    fields: list[bytes] = []
    place = 0
    while place < len(blob):
        size = int.from_bytes(blob[place : place + 4], "big")
        end = place + 4 + size
        if end > len(blob) or place + 4 > len(blob):
            return fields[:1] if fields else []
        fields.append(blob[place + 4 : end])
        place = end
    return fields
