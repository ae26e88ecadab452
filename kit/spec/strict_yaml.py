"""The part of YAML that a spec may use, with the line of every key kept. Pure: text in, tree or problems out.

No tags, anchors, aliases, merge keys, duplicate keys or second documents; scalars as in YAML 1.2, and what YAML 1.1
would read differently (``on``, ``017``, ``12:30``) is refused rather than guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

MAX_BYTES = 256 * 1024
MAX_DEPTH = 20

Path = tuple[str | int, ...]

_PARSER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Only its events are used; nothing is ever constructed. The C one is ten times faster."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_NULL = re.compile(r"(~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(true|True|TRUE|false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)\Z")
_FLOAT = re.compile(r"[-+]?(0|[1-9][0-9]*)?(\.[0-9]+|(\.[0-9]*)?[eE][-+]?[0-9]+|\.)\Z")
_YES_NO = re.compile(r"(y|n|yes|no|on|off)\Z", re.IGNORECASE)
_OTHER_BASE = re.compile(r"[-+]?(0[0-9_]+|0[oO][0-7_]+|0[xX][0-9A-Fa-f_]+|0[bB][01_]+)\Z")
_UNDERSCORED = re.compile(r"[-+]?[0-9][0-9]*_[0-9_.]*\Z")
_SEXAGESIMAL = re.compile(r"[-+]?[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?\Z")
_NOT_FINITE = re.compile(r"[-+]?\.(inf|nan)\Z", re.IGNORECASE)


@dataclass(frozen=True)
class Problem:
    """Something the text holds that a spec may not. ``line`` counts from 1; 0 when it is about the whole text."""

    line: int
    path: Path
    code: str
    expected: str
    found: str
    next: str


@dataclass
class Document:
    """What was read. ``value`` is plain (dict, list, str, int, float, bool, None); ``lines`` maps each path to its line."""

    value: Any = None
    lines: dict[Path, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)


class _Stop(Exception):
    """Reading cannot go on (the problem is already noted)."""


def _line(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 0


class _Reader:
    def __init__(self, events: Iterator[Event]) -> None:
        self.events = events
        self.out = Document()

    def problem(self, event: Event, path: Path, code: str, expected: str, found: str, next: str) -> None:
        self.out.problems.append(Problem(_line(event), path, code, expected, found, next))

    def document(self) -> Document:
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                if self.out.lines:
                    self.problem(event, (), "yaml.documents", "one document", "a second one after ---", "remove it")
                    raise _Stop
                self.out.value = self.node(next(self.events), (), 0)
                self.out.lines.setdefault((), 1)
            elif isinstance(event, StreamEndEvent):
                break
        return self.out

    def node(self, event: Event, path: Path, depth: int) -> Any:
        self.out.lines.setdefault(path, _line(event))
        if depth > MAX_DEPTH:
            self.problem(event, path, "yaml.depth", f"at most {MAX_DEPTH} levels", "deeper", "flatten it")
            raise _Stop
        if isinstance(event, AliasEvent):
            self.problem(event, path, "yaml.alias", "a value", f"the alias *{event.anchor}", "write the value out here")
            return None
        self.refuse_decorations(event, path)
        if isinstance(event, ScalarEvent):
            if not event.value.isascii() and _SURROGATE.search(event.value):
                self.problem(event, path, "yaml.encoding", "text", "half of a surrogate pair", "write the character itself")
                return None
            return event.value if event.style else self.plain(event, path)
        if isinstance(event, SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(child := next(self.events), SequenceEndEvent):
                items.append(self.node(child, (*path, len(items)), depth + 1))
            return items
        if isinstance(event, MappingStartEvent):
            return self.mapping(path, depth)
        raise AssertionError(f"unexpected YAML event {event!r}")

    def refuse_decorations(self, event: Event, path: Path) -> None:
        tag, anchor = getattr(event, "tag", None), getattr(event, "anchor", None)
        if tag is not None:
            self.problem(event, path, "yaml.tag", "a value without a tag", f"the tag {tag}", "remove the tag")
        if anchor is not None:
            self.problem(event, path, "yaml.alias", "a value without an anchor", f"&{anchor}", "remove the anchor")

    def mapping(self, path: Path, depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {}
        first: dict[str, int] = {}
        while not isinstance(event := next(self.events), MappingEndEvent):
            line = _line(event)
            if not isinstance(event, ScalarEvent):
                self.problem(event, path, "yaml.key", "a plain key", "a list, mapping or alias as a key", "use a plain key")
                raise _Stop
            key = event.value
            child = (*path, key)
            self.refuse_decorations(event, child)
            if key == "<<" and not event.style:
                self.problem(event, path, "yaml.merge", "keys written out", "the merge key <<", "write the keys out here")
            if key in out:
                self.problem(
                    event, child, "yaml.duplicate_key", "each key once", f"{key!r}, already at line {first[key]}", "keep one"
                )
                self.node(next(self.events), child, depth + 1)
                continue
            first[key] = line
            self.out.lines[child] = line
            out[key] = self.node(next(self.events), child, depth + 1)
        return out

    def plain(self, event: ScalarEvent, path: Path) -> Any:
        text = event.value
        if _NULL.match(text):
            return None
        if _BOOL.match(text):
            return text.lower() == "true"
        if _INT.match(text) and len(text) <= 30:
            return int(text)
        if _FLOAT.match(text) and text != ".":
            return float(text)
        trap = _trap(text)
        if trap:
            self.problem(event, path, "yaml.ambiguous", trap[0], text, trap[1])
            return None
        return text


def _trap(text: str) -> tuple[str, str] | None:
    """(expected, next) for a plain scalar that YAML versions read differently."""
    if _YES_NO.match(text):
        return "true or false", f'write true or false, or "{text}" in quotes when text is meant'
    if _OTHER_BASE.match(text) or _UNDERSCORED.match(text):
        return "a decimal number without leading zeros or underscores", f'write it in decimal, or "{text}" in quotes'
    if _SEXAGESIMAL.match(text):
        return "a value that YAML 1.1 does not read in base 60", f'write "{text}" in quotes'
    if _NOT_FINITE.match(text):
        return "a finite number", "give a number"
    return None


def read(text: str) -> Document:
    """Read one document. Problems are collected; the value is what could be read, only to be used when there are none."""
    if len(text.encode()) > MAX_BYTES:
        found = f"{len(text.encode())} bytes"
        return Document(problems=[Problem(0, (), "yaml.size", f"at most {MAX_BYTES} bytes", found, "split or shorten it")])
    reader = _Reader(yaml.parse(text, Loader=_PARSER))
    try:
        return reader.document()
    except _Stop:
        return reader.out
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 0
        said = getattr(error, "problem", None) or getattr(error, "reason", None) or "it cannot be parsed"
        found = str(said) + (f" (column {mark.column + 1})" if mark else "")
        reader.out.problems.append(Problem(line, (), "yaml.syntax", "valid YAML", found, "correct the syntax at this place"))
        return reader.out
    except RecursionError:
        reader.out.problems.append(Problem(0, (), "yaml.depth", f"at most {MAX_DEPTH} levels", "deeper", "flatten it"))
        return reader.out
