"""The strings that an expression is made of: tuples, sets, unions, joins, splits, names. Pure; never guesses."""

from __future__ import annotations

import libcst as cst

from kit.patch.evaluate import Evaluator
from kit.patch.follow import ClassAt, Followed, Follower, Place, Stuck
from kit.patch.package import Outside
from kit.patch.uses import Uses

_COPIES = {"builtins.tuple", "builtins.list", "builtins.set", "builtins.frozenset", "builtins.sorted", "builtins.dict"}


class Strings(Evaluator[tuple[str, ...]]):
    """Evaluates collections of strings in one package: in order, repeats kept. A plain string is split at the separator."""

    def __init__(self, follower: Follower, uses: Uses, separator: str) -> None:
        super().__init__(follower, uses)
        self.separator = separator

    def text(self, place: Place) -> str | None:
        """One string; None when it cannot be told."""
        node = self.follower.follow(place).end
        inner = node.node if isinstance(node, Place) else None
        if isinstance(inner, cst.SimpleString | cst.ConcatenatedString) and isinstance(inner.evaluated_value, str):
            return inner.evaluated_value
        return None

    def _at(self, place: Place, followed: Followed) -> tuple[str, ...] | Stuck:
        end = followed.end
        if isinstance(end, ClassAt):
            return self._members(end, place)
        if not isinstance(end, Place):
            return Stuck("no list of names that can be read", (place,))
        node = end.node
        plain = self.text(end)
        if plain is not None:
            return tuple(part.strip() for part in plain.split(self.separator) if part.strip())
        if isinstance(node, cst.Tuple | cst.List | cst.Set):
            return self._elements(end, [(e.value, isinstance(e, cst.StarredElement)) for e in node.elements])
        if isinstance(node, cst.Dict):
            pairs = [(e.key, False) if isinstance(e, cst.DictElement) else (e.value, True) for e in node.elements]
            return self._elements(end, pairs)
        if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, cst.Add | cst.BitOr):
            return self._all(end.at(node.left), end.at(node.right))
        if isinstance(node, cst.Call):
            return self._call(end, node)
        return Stuck("the names are built at run time", (end,))

    def _all(self, *places: Place) -> tuple[str, ...] | Stuck:
        out: tuple[str, ...] = ()
        for place in places:
            found = self.of(place)
            if isinstance(found, Stuck):
                return found
            out += found
        return out

    def _elements(self, place: Place, elements: list[tuple[cst.BaseExpression, bool]]) -> tuple[str, ...] | Stuck:
        out: tuple[str, ...] = ()
        for node, starred in elements:
            if starred:
                found = self.of(place.at(node))
            else:
                one = self.text(place.at(node))
                found = (one,) if one is not None else Stuck("a name that cannot be told", (place.at(node),))
            if isinstance(found, Stuck):
                return found
            out += found
        return out

    def _call(self, place: Place, node: cst.Call) -> tuple[str, ...] | Stuck:
        callee = self.follower.follow(place.at(node.func)).end
        if isinstance(callee, Outside) and callee.name in _COPIES and len(node.args) == 1 and node.args[0].keyword is None:
            return self.of(place.at(node.args[0].value))
        func = node.func
        if isinstance(func, cst.Attribute):
            method, base = func.attr.value, place.at(func.value)
            if method == "join" and len(node.args) == 1:
                return self.of(place.at(node.args[0].value))
            if method in ("split", "keys", "copy", "strip"):
                return self.of(base)
            if method == "union":
                return self._all(base, *(place.at(arg.value) for arg in node.args))
        return Stuck("the names are built at run time", (place,))

    def _members(self, owner: ClassAt, place: Place) -> tuple[str, ...] | Stuck:
        """The values of a string enum, in order."""
        out: tuple[str, ...] = ()
        for bindings in owner.scope.bindings.values():
            value = bindings[0].value
            if value is not None:
                one = self.text(Place(value, owner.scope))
                if one is None:
                    return Stuck(f"{owner.binding.name} has a member that is no string", (place,))
                out += (one,)
        return out or Stuck(f"{owner.binding.name} has no members", (place,))
