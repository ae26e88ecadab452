"""The enum members that a set expression holds, and where another could be added. Pure; never guesses."""

from __future__ import annotations

from dataclasses import dataclass

import libcst as cst

from kit.patch.bindings import Module
from kit.patch.evaluate import Evaluator
from kit.patch.follow import ClassAt, Followed, Follower, FunctionAt, Hop, Parameter, Place, Stuck
from kit.patch.package import Outside
from kit.patch.uses import Uses
from kit.patch.value import argument_of

_BUILDERS = {"builtins.frozenset", "builtins.set", "builtins.tuple", "builtins.list"}


@dataclass(frozen=True, eq=False)
class Literal:
    """A written-out collection, and the names passed to reach it (the last is the nearest)."""

    place: Place
    hops: tuple[Hop, ...]


@dataclass(frozen=True, eq=False)
class Members:
    """What a set holds. ``every`` means the whole enum."""

    names: frozenset[str]
    literals: tuple[Literal, ...] = ()
    every: bool = False

    def joined(self, other: Members) -> Members:
        """The union."""
        return Members(self.names | other.names, (*self.literals, *other.literals), self.every or other.every)

    def behind(self, hops: tuple[Hop, ...]) -> Members:
        """The same set, reached through names."""
        if not hops:
            return self
        return Members(self.names, tuple(Literal(x.place, (*hops, *x.hops)) for x in self.literals), self.every)


class Sets(Evaluator[Members]):
    """Evaluates sets of one enum's members."""

    def __init__(self, follower: Follower, uses: Uses, enum: str) -> None:
        super().__init__(follower, uses)
        self.enum = enum

    def _at(self, place: Place, followed: Followed) -> Members | Stuck:
        end = followed.end
        if isinstance(end, ClassAt | Outside) and self.is_enum(end):
            return Members(frozenset(), every=True)
        if isinstance(end, Parameter):
            return self._parameter(end, place)
        if not isinstance(end, Place):
            return Stuck(f"{place.module.code(place.node)} is no set that can be read", (place,))
        found = self._expression(end)
        return found if isinstance(found, Stuck) else found.behind(followed.hops)

    def is_enum(self, end: object) -> bool:
        """Whether something followed is the enum's class."""
        if isinstance(end, Outside):
            return end.name.rsplit(".", 1)[-1] == self.enum
        return isinstance(end, ClassAt) and end.binding.name == self.enum

    def member(self, place: Place) -> str | Stuck:
        """The member's name that an element stands for."""
        node = place.node
        if isinstance(node, cst.Subscript) and len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
            key = node.slice[0].slice.value
            if isinstance(key, cst.SimpleString) and self.is_enum(self.follower.follow(place.at(node.value)).end):
                return str(key.evaluated_value)
        if isinstance(node, cst.Attribute):
            base = self.follower.follow(place.at(node.value)).end
            if self.is_enum(base):
                return node.attr.value
        followed = self.follower.follow(place)
        end = followed.end
        if isinstance(end, Outside) and end.name.split(".")[-2:-1] == [self.enum]:
            return end.name.rsplit(".", 1)[-1]
        last = followed.hops[-1].binding if followed.hops else None
        if last is not None and last.value is not None and last.value is not node:
            return self.member(Place(last.value, last.value_scope)) if not last.scope.is_class else last.name
        return Stuck(f"{place.module.code(node)} is no member of {self.enum} that can be told", (place,))

    def _expression(self, place: Place) -> Members | Stuck:
        node = place.node
        if isinstance(node, cst.Set | cst.List | cst.Tuple):
            return self._literal(place, node)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(place, node)
        if isinstance(node, cst.Call):
            return self._call(place, node)
        if isinstance(node, cst.IfExp):
            return Stuck("the set is chosen at run time", (place.at(node.body), place.at(node.orelse)))
        if isinstance(node, cst.GeneratorExp | cst.SetComp | cst.ListComp):
            return Stuck("the set is built in a loop", (place,))
        return Stuck("the set cannot be read from the source", (place,))

    def _literal(self, place: Place, node: cst.Set | cst.List | cst.Tuple) -> Members | Stuck:
        out = Members(frozenset(), (Literal(place, ()),))
        for element in node.elements:
            if isinstance(element, cst.StarredElement):
                inner = self.of(place.at(element.value))
                if isinstance(inner, Stuck):
                    return inner
                out = out.joined(inner)
                continue
            name = self.member(place.at(element.value))
            if isinstance(name, Stuck):
                return name
            out = out.joined(Members(frozenset({name})))
        return out

    def _binary(self, place: Place, node: cst.BinaryOperation) -> Members | Stuck:
        left, right = self.of(place.at(node.left)), self.of(place.at(node.right))
        for side in (left, right):
            if isinstance(side, Stuck):
                return side
        assert isinstance(left, Members) and isinstance(right, Members)
        if isinstance(node.operator, cst.BitOr | cst.Add):
            return left.joined(right)
        return Stuck("the set is a difference or an intersection", (place,))

    def _call(self, place: Place, node: cst.Call) -> Members | Stuck:
        if any(arg.keyword is not None for arg in node.args):
            return Stuck("the set is computed at run time", (place,))
        func = node.func
        callee = self.follower.follow(place.at(func)).end
        if isinstance(callee, Outside) and callee.name in _BUILDERS and len(node.args) <= 1:
            if not node.args:
                return Members(frozenset(), (Literal(place, ()),))
            inner = self.of(place.at(node.args[0].value))
            return self._star_only(inner, node.args[0], place)
        if isinstance(func, cst.Attribute) and func.attr.value in ("union", "copy", "__or__"):
            return self._union(place, node, func)
        if isinstance(callee, FunctionAt):
            return Stuck(f"the set is made by the function {callee.binding.name}", (place,))
        return Stuck("the set is computed at run time", (place,))

    def _star_only(self, inner: Members | Stuck, arg: cst.Arg, place: Place) -> Members | Stuck:
        return Stuck("arguments are unpacked", (place,)) if arg.star else inner

    def _union(self, place: Place, node: cst.Call, func: cst.Attribute) -> Members | Stuck:
        base = self.follower.follow(place.at(func.value)).end
        out = Members(frozenset())
        parts = [place.at(arg.value) for arg in node.args]
        if not (isinstance(base, Outside) and base.name in _BUILDERS):
            parts = [place.at(func.value), *parts]
        if any(arg.star for arg in node.args):
            return Stuck("arguments are unpacked", (place,))
        for part in parts:
            inner = self.of(part)
            if isinstance(inner, Stuck):
                return inner
            out = out.joined(inner)
        return out

    def _parameter(self, end: Parameter, place: Place) -> Members | Stuck:
        """A parameter's set, when exactly one call gives it (or none, and it has a default)."""
        owner, scope = end.binding.scope.node, end.binding.scope.parent
        known = scope.bindings.get(owner.name.value, []) if isinstance(owner, cst.FunctionDef) and scope is not None else []
        if len(known) != 1 or not isinstance(owner, cst.FunctionDef) or (scope is not None and scope.is_class):
            return Stuck(f"{end.binding.name} is a parameter whose calls cannot be told", (place,))
        calls, passed_on = self.uses.calls(known[0])
        if len(calls) != 1 or passed_on:
            return Stuck(f"{end.binding.name} depends on {len(calls)} calls of {owner.name.value}", (*calls, *passed_on))
        params = [p.name.value for p in (*owner.params.posonly_params, *owner.params.params)]
        position = params.index(end.binding.name) if end.binding.name in params else None
        given = argument_of(calls[0], end.binding.name, position)
        if given is None and end.binding.value is not None:
            given = Place(end.binding.value, end.binding.value_scope)
        if given is None:
            return Stuck(f"the call of {owner.name.value} does not say {end.binding.name}", (calls[0],))
        return given if isinstance(given, Stuck) else self.of(given)


def name_for_enum(sets: Sets, module: Module) -> str | None:
    """How a module calls the enum: the name it is imported as, or ``alias.Enum``."""
    for name, bindings in module.scope.bindings.items():
        if len(bindings) == 1 and bindings[0].imported is not None:
            end = sets.follower.binding(bindings[0], bindings[0].node).end
            if sets.is_enum(end):
                return name
    return next((module.code(a) for a, s in module.attributes if sets.is_enum(sets.follower.follow(Place(a, s)).end)), None)
