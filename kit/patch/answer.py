"""What one edit found, and the bytes it would change. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kit.patch.follow import Place
from kit.patch.report import Site, State


@dataclass(frozen=True)
class Splice:
    """Bytes ``start`` to ``end`` of a file become ``new``; ``old`` is what must stand there."""

    path: str
    start: int
    end: int
    old: bytes
    new: bytes


@dataclass(frozen=True)
class Answer:
    """One edit against one tree."""

    state: State
    reason: str
    sites: tuple[Site, ...] = ()
    next: str = ""
    splices: tuple[Splice, ...] = ()
    """Only when the state is ``applies``."""
    chain: frozenset[str] = frozenset()
    """Files that the value passes through."""
    nodes: frozenset[int] = field(default=frozenset(), compare=False)
    """``id`` of the syntax nodes that the edit accounts for."""


class CannotPlace(Exception):
    """A change that does not fit the bytes it was computed for."""


def splice(content: bytes, changes: Iterable[Splice]) -> bytes:
    """Lay changes into a file. Equal changes count once. Raises CannotPlace when two overlap or the old bytes differ."""
    out, upto = content, len(content)
    for change in sorted(set(changes), key=lambda c: (c.start, c.end), reverse=True):
        if change.end > upto or not 0 <= change.start <= change.end:
            raise CannotPlace(f"two edits of {change.path} overlap at byte {change.start}")
        if out[change.start : change.end] != change.old:
            raise CannotPlace(f"{change.path} does not hold {change.old!r} at byte {change.start}")
        out, upto = out[: change.start] + change.new + out[change.end :], change.start
    return out


def site(place: Place, note: str = "") -> Site:
    """A syntax node as a place for a person."""
    line = place.line
    return Site(file=place.module.path, line=line, found=shown(place.module.text_of_line(line)), note=note)


def shown(text: str) -> str:
    """At most 160 printable characters of a line."""
    text = "".join(c if c.isprintable() else "�" for c in text.strip())
    return text if len(text) <= 160 else text[:157] + "..."


def unique(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Sites without repeats, in file and line order; at most 40 (the reason says how many there are)."""
    ordered = sorted(dict.fromkeys(sites), key=lambda s: (s.file, s.line))
    return tuple(ordered[:40])


def python_splice(place: Place, new: str) -> Splice:
    """Replace an expression (inside its parentheses, if any). Raises CannotPlace when the file's bytes are not as parsed."""
    module = place.module
    start, end = module.span(place.node)
    shift = 3 if module.content.startswith(b"\xef\xbb\xbf") else 0
    start, end = start + shift, end + shift
    encoding = module.tree.encoding.removesuffix("-sig")
    bare = place.node.with_changes(lpar=(), rpar=()) if hasattr(place.node, "lpar") else place.node
    old = module.tree.code_for_node(bare).encode(encoding)
    if module.content[start:end] != old:
        raise CannotPlace(f"{module.path}:{place.line}: the bytes differ from the parsed text ({encoding})")
    return Splice(module.path, start, end, old, new.encode(encoding))


def merge(answers: Sequence[Answer]) -> Answer:
    """The edits of one patch as one: the gravest state, every site, the reasons that matter."""
    order = (State.CONFLICT, State.AMBIGUOUS, State.APPLIES, State.ALREADY)
    states = {a.state for a in answers}
    state = next((s for s in order if s in states), State.ALREADY)
    grave = state in (State.CONFLICT, State.AMBIGUOUS)
    told = [a for a in answers if a.state is state] if grave else list(answers)
    sites = unique(s for a in told for s in a.sites)
    count = len({s for a in told for s in a.sites})
    reason = "; ".join(dict.fromkeys(a.reason for a in told if a.reason))
    if count > len(sites):
        reason += f" (the first {len(sites)} of {count} places are shown)"
    return Answer(
        state,
        reason,
        sites,
        " ".join(dict.fromkeys(a.next for a in told if a.next)),
        () if grave else tuple(s for a in answers for s in a.splices),
        frozenset(f for a in answers for f in a.chain),
        frozenset(n for a in answers for n in a.nodes),
    )
