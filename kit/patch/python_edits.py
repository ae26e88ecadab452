"""Edits of Python by meaning: where a call gives a value, follow it to where it is written. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import libcst as cst

from kit.patch.answer import Answer, Splice, merge, python_splice, site, unique
from kit.patch.bindings import last_name
from kit.patch.follow import ClassAt, Follower, Hop, Place, Stuck
from kit.patch.members import Literal, Members, Sets, name_for_enum
from kit.patch.model import PythonArgument, PythonMember
from kit.patch.names import is_same
from kit.patch.package import Outside, Package
from kit.patch.report import State
from kit.patch.uses import Uses
from kit.patch.value import Found, Values, argument_of, mapping_entry

_REPLACERS = ("replace", "_replace", "evolve", "force_setattr", "setattr")
LOOK = "Look at the candidates, then narrow the patch or change the source by hand."


class PythonEdits:
    """Judges Python edits against one package."""

    def __init__(self, package: Package) -> None:
        self.follower = Follower(package)
        self.uses = Uses(self.follower)
        self.values = Values(self.follower, self.uses)
        self.package = package

    def calls(self, callee: str) -> list[Place]:
        """Calls of a class or function of the contract, or of a subclass, under whatever name."""
        names = self.uses.aliases({callee})
        out: list[Place] = []
        for module in self.package.calling(names):
            for call, scope in module.calls:
                if last_name(call.func) in names and self._is(Place(call.func, scope), callee):
                    out.append(Place(call, scope))
        return out

    def _is(self, func: Place, callee: str) -> bool:
        end = self.follower.follow(func).end
        while isinstance(end, ClassAt) and end.binding.name != callee:
            node = end.binding.node
            bases = node.bases if isinstance(node, cst.ClassDef) else ()
            parents = [self.follower.follow(Place(base.value, end.binding.scope)).end for base in bases]
            end = next((p for p in parents if isinstance(p, ClassAt | Outside)), Stuck(""))
        if isinstance(end, Outside):
            return end.name.rsplit(".", 1)[-1] == callee
        # A name that cannot be followed still counts when it is spelled so: better a candidate too many.
        return isinstance(end, ClassAt) or (isinstance(end, Stuck) and func.module.code(func.node).rsplit(".", 1)[-1] == callee)

    def given(self, call: Place, argument: str, position: int | None) -> Place | Stuck | None:
        """What a call gives to an argument, ``**{...}`` and the default of a subclass included."""
        found = argument_of(call, argument, position)
        if isinstance(found, Stuck):
            for candidate in found.candidates:
                end = self.follower.follow(candidate).end
                entry = mapping_entry(end, argument) if isinstance(end, Place) else None
                if entry is not None:
                    return entry
        if found is None and isinstance(call.node, cst.Call):
            owner = self.follower.follow(call.at(call.node.func)).end
            if isinstance(owner, ClassAt):
                default = self.follower.class_member(owner, argument, call.node)
                return default.end if isinstance(default.end, Place) else None
        return found

    def argument(self, edit: PythonArgument) -> Answer:
        """``python-argument`` against the tree."""
        calls = self.calls(edit.call)
        what = f"{edit.call}(... {edit.argument} ...)"
        wrong = self._count(calls, edit.call, edit.count)
        if wrong is not None:
            return wrong
        answers = self._replaced(edit)
        for call in calls:
            given = self.given(call, edit.argument, edit.position)
            if given is None:
                reason = f"{edit.call} is called without {edit.argument}"
                answers.append(Answer(State.CONFLICT, reason, (site(call),), f"See what took {edit.argument}'s place."))
            elif isinstance(given, Stuck):
                answers.append(stuck(given, what))
            else:
                answers.append(self._value(edit, given, what))
        grave = [a for a in answers if a.state in (State.CONFLICT, State.AMBIGUOUS)]
        return _one(grave or answers)

    def _replaced(self, edit: PythonArgument) -> list[Answer]:
        """``replace(requirements, resident_blocks=...)``: the value at the constructor is not the last word."""
        found = [
            Place(call, scope)
            for module in self.package.giving(edit.argument)
            for call, scope in module.calls
            if last_name(call.func) in _REPLACERS
            if any(arg.keyword is not None and arg.keyword.value == edit.argument for arg in call.args)
        ]
        reason = f"{edit.argument} is also given by a replace()"
        return [Answer(State.AMBIGUOUS, reason, unique(site(p, "a candidate") for p in found), LOOK)] if found else []

    def _count(self, calls: list[Place], callee: str, count: int) -> Answer | None:
        if not calls:
            reason = f"{callee} is called nowhere in this tree"
            return Answer(State.CONFLICT, reason, (), "Check that this is the plugin's source, of the version the patch names.")
        if len(calls) != count:
            reason = f"{callee} is called {len(calls)} times, {count} expected"
            return Answer(State.AMBIGUOUS, reason, unique(site(c, "a candidate") for c in calls), LOOK)
        return None

    def _value(self, edit: PythonArgument, given: Place, what: str) -> Answer:
        found = self.values.of(given)
        if isinstance(found, Stuck):
            return stuck(found, what, given)
        chain = frozenset(p.module.path for p in found.places) | frozenset(_files(found.hops)) | {given.module.path}
        nodes = frozenset(id(p.node) for p in found.places)
        sites = unique(site(p) for p in found.places)
        if found.value == edit.new:
            return Answer(State.ALREADY, f"{edit.argument} is {edit.new}", sites, chain=chain, nodes=nodes)
        if found.value != edit.old:
            reason = f"{edit.argument} is {found.value}, expected {edit.old} (or {edit.new} when patched)"
            return Answer(State.CONFLICT, reason, sites, "Check the plugin's version and what it needs now.")
        shared = self._sibling(found, edit) or self._shared(found, edit)
        if shared is not None:
            return shared
        if any(p.module.foreign for p in found.places):
            return Answer(State.CONFLICT, f"{edit.argument} is written outside this tree", sites, "Patch that project.")
        splices = tuple(python_splice(p, str(edit.new)) for p in found.places)
        noted = unique(site(p, f"{_text(p)} -> {edit.new}") for p in found.places)
        return Answer(State.APPLIES, f"{edit.argument} {edit.old} -> {edit.new}", noted, "", splices, chain, nodes)

    def _sibling(self, found: Found, edit: PythonArgument) -> Answer | None:
        """``GB300 = 152`` beside ``B300 = 148`` in one class: changing the first would make two names of one enum member."""
        for hop in found.hops:
            scope = hop.binding.scope if hop.binding is not None else None
            if scope is None or not scope.is_class:
                continue
            for name, bindings in scope.bindings.items():
                value = bindings[0].value
                known = self.values.of(Place(value, scope)) if value is not None and name != hop.name else None
                if isinstance(known, Found) and known.value == edit.new:
                    reason = f"{hop.name} is {edit.old}, and {name} of the same class is {edit.new} already"
                    return Answer(State.AMBIGUOUS, reason, unique(site(p) for p in (*found.places, *known.places)), LOOK)
        return None

    def _shared(self, found: Found, edit: PythonArgument) -> Answer | None:
        """A constant that is named for something else *and* used elsewhere may mean two things."""
        passed = {id(hop.via) for hop in found.hops}
        for hop in found.hops:
            if is_same(hop.name, edit.meaning):
                continue
            others = self.uses.others(hop, passed)
            if others:
                reason = f"{hop.name} gives {edit.argument}, but is used elsewhere too and may mean something else there"
                first = [site(p, f"defines {hop.name}") for p in found.places]
                remedy = f"If {hop.name} is this setting everywhere, declare it under meaning.same; else edit by hand."
                return Answer(State.AMBIGUOUS, reason, unique([*first, *(site(o, f"uses {hop.name}") for o in others)]), remedy)
        return None

    def member(self, edit: PythonMember) -> Answer:
        """``python-member`` against the tree."""
        calls = self.calls(edit.call)
        wrong = self._count(calls, edit.call, edit.count)
        if wrong is not None:
            return wrong
        sets = Sets(self.follower, self.uses, edit.enum)
        return _one([self._member(edit, sets, call) for call in calls])

    def _member(self, edit: PythonMember, sets: Sets, call: Place) -> Answer:
        what = f"{edit.call}(... {edit.argument} ...)"
        given = self.given(call, edit.argument, edit.position)
        if given is None:
            return Answer(State.CONFLICT, f"{edit.call} is called without {edit.argument}", (site(call),), LOOK)
        found = given if isinstance(given, Stuck) else sets.of(given)
        if isinstance(found, Stuck) or isinstance(given, Stuck):
            return stuck(found if isinstance(found, Stuck) else Stuck(""), what, None if isinstance(given, Stuck) else given)
        chain = frozenset(x.place.module.path for x in found.literals) | {given.module.path}
        if found.every or edit.add in found.names:
            reason = f"{edit.argument} has {edit.enum}.{edit.add}"
            return Answer(State.ALREADY, reason, unique(site(x.place) for x in found.literals) or (site(given),), chain=chain)
        target = self._own_literal(found, given)
        if target is None:
            return self._wrapped(edit, sets, given, chain)
        written = _spelled(edit, sets, target)
        if written is None:
            reason = f"{target.module.path} has no name for {edit.enum}"
            return Answer(State.AMBIGUOUS, reason, (site(target),), LOOK)
        sites, added = (site(target, f"{written} is added"),), (_added(target, written),)
        return Answer(State.APPLIES, f"{edit.argument} gains {edit.add}", sites, "", added, chain)

    def _own_literal(self, found: Members, given: Place) -> Place | None:
        """A literal that only this call reads: the one written at the call first, then the last named one."""
        passed = {id(h.via) for x in found.literals for h in x.hops} | {id(given.node)}
        own = [x for x in found.literals if not x.place.module.foreign and not self._read_elsewhere(x, passed)]
        own.sort(key=lambda x: (len(x.hops), not _elements(x.place.node)))
        return own[0].place if own else None

    def _read_elsewhere(self, literal: Literal, passed: set[int]) -> bool:
        return any(self.uses.others(hop, passed) for hop in literal.hops)

    def _wrapped(self, edit: PythonMember, sets: Sets, given: Place, chain: frozenset[str]) -> Answer:
        """Every set on the way has other readers: widen it at this call only."""
        name = name_for_enum(sets, given.module)
        if name is None:
            reason = f"the sets are used elsewhere too, and {given.module.path} has no name for {edit.enum}"
            return Answer(State.AMBIGUOUS, reason, (site(given),), LOOK)
        start = python_splice(given, "")
        # Starred, so that a tuple or list on the way becomes a set as well.
        wider = b"frozenset({*" + start.old + f", {name}.{edit.add}}})".encode()
        change = Splice(start.path, start.start, start.end, start.old, wider)
        where = (site(given, f"becomes {wider.decode()}: its sets are used elsewhere too"),)
        return Answer(State.APPLIES, f"{edit.argument} gains {edit.add}", where, "", (change,), chain)


def stuck(found: Stuck, what: str, given: Place | None = None) -> Answer:
    """An ambiguous answer with its candidates."""
    candidates = found.candidates or ((given,) if given is not None else ())
    return Answer(State.AMBIGUOUS, f"{what}: {found.reason}", unique(site(p, "a candidate") for p in candidates), LOOK)


def _one(answers: list[Answer]) -> Answer:
    if len({a.state for a in answers} & {State.APPLIES, State.ALREADY}) == 2:
        reason = "some calls are changed already, others are not"
        return Answer(State.CONFLICT, reason, unique(s for a in answers for s in a.sites), "Start from the plugin's own source.")
    return merge(answers)


def _files(hops: Iterable[Hop]) -> Iterable[str]:
    return (hop.binding.module.path for hop in hops if hop.binding is not None)


def _text(place: Place) -> str:
    return " ".join(place.module.code(place.node).split())


def _elements(node: cst.BaseExpression) -> list[cst.BaseElement]:
    return list(node.elements) if isinstance(node, cst.Set | cst.List | cst.Tuple) else []


def _spelled(edit: PythonMember, sets: Sets, target: Place) -> str | None:
    """The new member as its siblings are written: ``spec.Feature.X`` beside ``spec.Feature.Y``."""
    for element in _elements(target.node):
        value = element.value
        if isinstance(value, cst.Attribute) and sets.is_enum(sets.follower.follow(target.at(value.value)).end):
            return f"{target.module.code(value.value)}.{edit.add}"
    name = name_for_enum(sets, target.module)
    return f"{name}.{edit.add}" if name is not None else None


def _added(target: Place, written: str) -> Splice:
    """Insert an element in the literal's own layout: on a line of its own when the last one has one."""
    elements = _elements(target.node)
    if not elements:
        bare = python_splice(target, "")
        if isinstance(target.node, cst.Call):
            text = f"{target.module.code(target.node.func)}({{{written}}})"
        else:
            text = f"({written},)" if isinstance(target.node, cst.Tuple) else f"[{written}]"
        return Splice(bare.path, bare.start, bare.end, bare.old, text.encode())
    last = python_splice(target.at(elements[-1].value), "")
    content = target.module.content
    before = content[content.rfind(b"\n", 0, last.start) + 1 : last.start]
    newline = b"\r\n" if b"\r\n" in content else b"\n"
    own_line = not before.strip()
    comment = b"#" in content[last.end : content.find(b"\n", last.end)] if own_line else False
    between = b"," + newline + before if own_line else b", "
    if comment:
        return Splice(last.path, last.start, last.start, b"", written.encode() + between)
    return Splice(last.path, last.end, last.end, b"", between + written.encode())
