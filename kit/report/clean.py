"""Text from hosts made safe to show: nothing in it can move a cursor, colour a line or turn text around. Pure."""

from __future__ import annotations

import re
import unicodedata

_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\ufff9-\ufffb]"
)


def visible(text: object) -> str:
    """The text with control characters, direction overrides and invisible characters written out, e.g. ``\\x1b``.

    Tabs and newlines stay.
    """
    return _HIDDEN.sub(_written_out, str(text))


def one_line(text: object) -> str:
    """:func:`visible`, with newlines and tabs as single spaces."""
    return " ".join(visible(text).split())


def _written_out(match: re.Match[str]) -> str:
    code = ord(match[0])
    name = unicodedata.name(match[0], "")
    return f"\\x{code:02x}" if code < 0x100 and not name else f"\\u{code:04x}"
