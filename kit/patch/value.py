"""The integer that an expression is, and the one place to change for it to be another. Pure; never guesses."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

import libcst as cst

from kit.patch.bindings import Binding, Module
from kit.patch.evaluate import Evaluator
from kit.patch.follow import ClassAt, Followed, FunctionAt, Hop, Parameter, Place, Stuck
from kit.patch.package import Outside

_BINARY: dict[type[cst.BaseBinaryOp], Callable[[int, int], int]] = {
    cst.Add: operator.add,
    cst.Subtract: operator.sub,
    cst.Multiply: operator.mul,
    cst.FloorDivide: operator.floordiv,
    cst.Modulo: operator.mod,
    cst.BitAnd: operator.and_,
    cst.BitOr: operator.or_,
    cst.BitXor: operator.xor,
}
_SHIFTS: dict[type[cst.BaseBinaryOp], Callable[[int, int], int]] = {
    cst.LeftShift: operator.lshift,
    cst.RightShift: operator.rshift,
    cst.Power: operator.pow,
}


@dataclass(frozen=True, eq=False)
class Found:
    """A value that can be told. ``places`` are the expressions to replace (several only when several calls agree)."""

    value: int
    places: tuple[Place, ...]
    hops: tuple[Hop, ...] = ()


class Values(Evaluator[Found]):
    """Evaluates integer expressions in one package."""

    max_depth = 60

    def _at(self, place: Place, followed: Followed) -> Found | Stuck:
        end = followed.end
        if isinstance(end, Outside):
            return Stuck(f"{end.name} is not in this tree", (place,), outside=end.name)
        if isinstance(end, Parameter):
            found = self._parameter(end.binding)
        elif isinstance(end, Place):
            found = self._expression(end)
        else:
            kind = {Module: "a module", ClassAt: "a class", FunctionAt: "a function"}[type(end)]
            return Stuck(f"{place.module.code(place.node)} is {kind}, not a number", (place,))
        if isinstance(found, Stuck):
            return found
        return Found(found.value, found.places, (*followed.hops, *found.hops))

    def _expression(self, place: Place) -> Found | Stuck:
        node = place.node
        if isinstance(node, cst.Integer):
            return Found(node.evaluated_value, (place,))
        if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus | cst.Plus):
            inner = self.of(place.at(node.expression))
            sign = -1 if isinstance(node.operator, cst.Minus) else 1
            return inner if isinstance(inner, Stuck) else Found(sign * inner.value, (place,), inner.hops)
        if isinstance(node, cst.BinaryOperation):
            return self._binary(place, node)
        if isinstance(node, cst.Call):
            return self._call(place, node)
        if isinstance(node, cst.Subscript):
            return self._subscript(place, node)
        if isinstance(node, cst.IfExp):
            both = (place.at(node.body), place.at(node.orelse))
            return Stuck("the value is chosen at run time", both)
        return Stuck(f"{_short(place)} is not a number that can be told from the source", (place,))

    def _binary(self, place: Place, node: cst.BinaryOperation) -> Found | Stuck:
        left, right = self.of(place.at(node.left)), self.of(place.at(node.right))
        for side in (left, right):
            if isinstance(side, Stuck):
                return side
        assert isinstance(left, Found) and isinstance(right, Found)
        kind = type(node.operator)
        act = _BINARY.get(kind)
        if kind in _SHIFTS and 0 <= right.value <= 64:
            act = _SHIFTS[kind]
        if act is None or (kind in (cst.FloorDivide, cst.Modulo) and right.value == 0):
            return Stuck(f"{_short(place)} is not arithmetic that can be followed", (place,))
        return Found(act(left.value, right.value), (place,), (*left.hops, *right.hops))

    def _call(self, place: Place, node: cst.Call) -> Found | Stuck:
        callee = self.follower.follow(place.at(node.func)).end
        args = node.args
        plain = all(arg.keyword is None and not arg.star for arg in args)
        if isinstance(callee, Outside) and plain:
            if callee.name == "builtins.int" and len(args) == 1:
                return self.of(place.at(args[0].value))
            if callee.name == "typing.cast" and len(args) == 2:
                return self.of(place.at(args[1].value))
        if isinstance(callee, FunctionAt) and not args and isinstance(callee.binding.node, cst.FunctionDef):
            returned = _only_return(callee.binding.node)
            if returned is not None:
                inner = self.of(Place(returned, callee.binding.module.inner[id(callee.binding.node)]))
                hop = Hop(callee.binding.name, node.func, callee.binding)
                return inner if isinstance(inner, Stuck) else Found(inner.value, inner.places, (hop, *inner.hops))
        return Stuck(f"{_short(place)} is computed at run time", (place,))

    def _subscript(self, place: Place, node: cst.Subscript) -> Found | Stuck:
        """``TABLE["name"]`` where TABLE is one dictionary literal."""
        base = self.follower.follow(place.at(node.value))
        index = node.slice[0].slice if len(node.slice) == 1 else None
        key = index.value if isinstance(index, cst.Index) else None
        if isinstance(base.end, Place) and isinstance(key, cst.SimpleString):
            for hop in base.hops:
                if hop.binding is not None and self.uses.mutated(hop.binding):
                    return Stuck(f"{hop.name} is also changed elsewhere", (base.end,))
            entry = mapping_entry(base.end, str(key.evaluated_value))
            if entry is not None:
                found = self.of(entry)
                hop = Hop(str(key.evaluated_value), node)
                return found if isinstance(found, Stuck) else Found(found.value, found.places, (hop, *found.hops))
        return Stuck(f"{_short(place)} cannot be followed", (place,))

    def _parameter(self, parameter: Binding) -> Found | Stuck:
        """What the calls give to a parameter, or its default; all calls must agree."""
        owner = parameter.scope.node
        if not isinstance(owner, cst.FunctionDef) or parameter.scope.parent is None:
            return Stuck(f"{parameter.name} is a parameter of a lambda", ())
        name = owner.name.value
        function = next((b for b in parameter.scope.parent.bindings.get(name, []) if b.node is owner), None)
        if function is None or parameter.scope.parent.is_class:
            return Stuck(f"{parameter.name} is a parameter of the method {name}", _default(parameter))
        calls, passed_on = self.uses.calls(function)
        if passed_on or not calls:
            reason = f"{name} is passed on as a value" if passed_on else f"{name} is called nowhere in this tree"
            return Stuck(f"{parameter.name} depends on the caller: {reason}", (*passed_on, *_default(parameter)))
        found: list[Found] = []
        for call in calls:
            given = argument_of(call, parameter.name, _position(owner, parameter.name))
            place = given if given is not None else next(iter(_default(parameter)), None)
            silent = Stuck(f"a call of {name} does not say {parameter.name}", (call,))
            one = self.of(place) if isinstance(place, Place) else place or silent
            if isinstance(one, Stuck):
                return one
            found.append(one)
        if len({f.value for f in found}) > 1:
            return Stuck(f"calls of {name} give different {parameter.name}", tuple(p for f in found for p in f.places))
        places = {id(p.node): p for f in found for p in f.places}
        return Found(found[0].value, tuple(places.values()), tuple(h for f in found for h in f.hops))


def argument_of(call: Place, name: str, position: int | None) -> Place | Stuck | None:
    """The expression that a call gives to an argument: by name, by position, or from ``**{...}``; None when it gives none."""
    assert isinstance(call.node, cst.Call)
    args = call.node.args
    for arg in args:
        if arg.keyword is not None and arg.keyword.value == name:
            return call.at(arg.value)
    plain = [arg for arg in args if arg.keyword is None and not arg.star]
    stars = [arg for arg in args if arg.star]
    if position is not None and position < len(plain):
        return call.at(plain[position].value)
    if stars:
        return Stuck("arguments are unpacked", tuple(call.at(arg.value) for arg in stars))
    return None


def mapping_entry(place: Place, key: str) -> Place | None:
    """The value of a key in ``{"key": X}`` or ``dict(key=X)``; None when it is not there for sure."""
    node = place.node
    if isinstance(node, cst.Dict):
        hits = []
        for element in node.elements:
            if not isinstance(element, cst.DictElement):
                return None
            if isinstance(element.key, cst.SimpleString) and element.key.evaluated_value == key:
                hits.append(element.value)
        return place.at(hits[0]) if len(hits) == 1 else None
    if isinstance(node, cst.Call) and isinstance(node.func, cst.Name) and node.func.value == "dict":
        given = argument_of(place, key, None)
        return given if isinstance(given, Place) else None
    return None


def _only_return(function: cst.FunctionDef) -> cst.BaseExpression | None:
    """X of a function whose body is ``return X`` (a docstring may stand before it)."""
    body = function.body.body
    parts = [s for line in body for s in (line.body if isinstance(line, cst.SimpleStatementLine) else [line])]
    while parts and isinstance(parts[0], cst.Expr) and isinstance(parts[0].value, cst.SimpleString):
        parts = parts[1:]
    return parts[0].value if len(parts) == 1 and isinstance(parts[0], cst.Return) else None


def _position(function: cst.FunctionDef, name: str) -> int | None:
    """The index at which a parameter may be given without its name."""
    params = [*function.params.posonly_params, *function.params.params]
    return next((index for index, param in enumerate(params) if param.name.value == name), None)


def _default(parameter: Binding) -> tuple[Place, ...]:
    return (Place(parameter.value, parameter.value_scope),) if parameter.value is not None else ()


def _short(place: Place) -> str:
    text = " ".join(place.module.code(place.node).split())
    return text if len(text) <= 60 else text[:57] + "..."
