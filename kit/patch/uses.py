"""Who else uses a binding, over the whole package: a constant with two users may have two meanings. Pure."""

from __future__ import annotations

import libcst as cst

from kit.patch.bindings import Binding, Module, Scope, last_name
from kit.patch.follow import ClassAt, Followed, Follower, FunctionAt, Hop, Place
from kit.patch.package import Outside


class Uses:
    """Finds uses and calls of bindings in one package."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower
        self.package = follower.package

    def aliases(self, names: set[str]) -> set[str]:
        """Every name under which one of ``names`` may be known: imports ``as``, plain re-assignments, subclasses."""
        known = set(names)
        while True:
            more = self.package.known_as(known) - known
            if not more:
                return known
            known |= more

    def others(self, hop: Hop, passed: set[int]) -> list[Place]:
        """Loads of the hop's name that were not passed on the way (``passed``: ids of nodes)."""
        binding = hop.binding
        if binding is None:
            return self._attributes(hop.name, passed, None)
        if binding.scope.is_class:
            return self._attributes(binding.name, passed, binding)
        if binding.scope.parent is not None:
            return [
                Place(node, scope)
                for node, scope in binding.module.loads
                if node.value == binding.name and id(node) not in passed and binding in self.follower.lookup(node.value, scope)
            ]
        return self._of_module(binding, passed)

    def _attributes(self, attr: str, passed: set[int], binding: Binding | None) -> list[Place]:
        """Every ``x.attr`` that is, or may be, this field; only a base that is surely something else is left out."""
        out: list[Place] = []
        for module in self.package.using({attr}):
            for node, scope in module.attributes:
                if node.attr.value != attr or id(node) in passed or id(node) in _stored(module):
                    continue
                base = self.follower.follow(Place(node.value, scope)).end
                if isinstance(base, Module | Outside):
                    continue
                if isinstance(base, ClassAt) and binding is not None and binding.scope is not base.scope:
                    continue
                out.append(Place(node, scope))
        return out

    def _of_module(self, binding: Binding, passed: set[int]) -> list[Place]:
        names = self.aliases({binding.name})
        out: list[Place] = []
        for module in self.package.using(names):
            for node, scope in module.loads:
                known = node.value in names and id(node) not in passed
                if known and self._is(self.follower.name(node.value, scope, node), binding):
                    out.append(Place(node, scope))
            for attribute, scope in module.attributes:
                if attribute.attr.value in names and id(attribute) not in passed:
                    base = self.follower.follow(Place(attribute.value, scope)).end
                    name = attribute.attr.value
                    if isinstance(base, Module) and self._is(self.follower.module_member(base, name, attribute), binding):
                        out.append(Place(attribute, scope))
        return out

    def _is(self, followed: Followed, wanted: Binding) -> bool:
        """Whether a name, through imports only, is the wanted binding (an import makes no hop)."""
        return bool(followed.hops) and followed.hops[0].binding is wanted

    def calls(self, function: Binding) -> tuple[list[Place], list[Place]]:
        """Calls of a function or class of the tree, and loads that pass it on without a call (which cannot be followed)."""
        names = self.aliases({function.name})
        calls: list[Place] = []
        called: set[int] = set()
        for module in self.package.calling(names):
            for call, scope in module.calls:
                end = self.follower.follow(Place(call.func, scope)).end if last_name(call.func) in names else None
                if isinstance(end, FunctionAt | ClassAt) and end.binding is function:
                    calls.append(Place(call, scope))
                    called |= {id(call.func)}
        hop = Hop(function.name, function.node, function)
        passed_on = [] if function.scope.is_class else self.others(hop, called)
        return calls, passed_on

    def mutated(self, binding: Binding) -> list[Place]:
        """``NAME.add(...)``, ``module.NAME = ...`` and the like: the value is not the expression alone."""
        out: list[Place] = []
        names = self.aliases({binding.name})
        for module in self.package.using(names):
            for target in module.stored_attributes:
                if target.attr.value in names and _is_module(self.follower, target.value, module.scope):
                    out.append(Place(target, module.scope))
            for call, scope in module.calls:
                func = call.func
                if isinstance(func, cst.Attribute) and func.attr.value in _MUTATORS and last_name(func.value) in names:
                    out.append(Place(call, scope))
        return out


_MUTATORS = {"add", "update", "discard", "remove", "append", "extend", "insert", "pop", "clear", "setdefault"} | {
    "difference_update",
    "intersection_update",
    "symmetric_difference_update",
    "__ior__",
}


def _is_module(follower: Follower, node: cst.BaseExpression, scope: Scope) -> bool:
    return isinstance(follower.follow(Place(node, scope)).end, Module)


def _stored(module: Module) -> set[int]:
    return {id(node) for node in module.stored_attributes}
