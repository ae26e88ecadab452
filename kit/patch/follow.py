"""From a name or attribute to what it stands for: through imports, classes, instances and parameters. Pure; never guesses."""

from __future__ import annotations

import builtins
from dataclasses import dataclass, replace

import libcst as cst

from kit.patch.bindings import Binding, Import, Kind, Module, Scope
from kit.patch.package import Outside, Package, Several

MAX_HOPS = 40


@dataclass(frozen=True, eq=False)
class Place:
    """An expression, and the scope that it is evaluated in."""

    node: cst.BaseExpression
    scope: Scope

    @property
    def module(self) -> Module:
        return self.scope.module

    @property
    def line(self) -> int:
        return self.module.line(self.node)

    def at(self, node: cst.BaseExpression) -> Place:
        """Another expression in the same scope."""
        return Place(node, self.scope)


@dataclass(frozen=True)
class Stuck:
    """It cannot be told. ``candidates`` are the places that a person should look at."""

    reason: str
    candidates: tuple[Place, ...] = ()
    outside: str = ""
    """The dotted name, when it is only that it lies outside the tree."""


@dataclass(frozen=True, eq=False)
class Hop:
    """A name that carried the value on the way, and the node that named it. Without a binding: a field given at a call."""

    name: str
    via: cst.CSTNode
    binding: Binding | None = None


@dataclass(frozen=True, eq=False)
class ClassAt:
    """A class of the tree."""

    binding: Binding
    scope: Scope


@dataclass(frozen=True, eq=False)
class FunctionAt:
    """A function of the tree."""

    binding: Binding


@dataclass(frozen=True, eq=False)
class Parameter:
    """A parameter: its value depends on the calls."""

    binding: Binding


End = Place | Module | Outside | ClassAt | FunctionAt | Parameter | Stuck


@dataclass(frozen=True, eq=False)
class Followed:
    """Where a name led, and the bindings passed, first to last."""

    end: End
    hops: tuple[Hop, ...] = ()

    def after(self, *hops: Hop) -> Followed:
        """The same end with hops put before."""
        return replace(self, hops=(*hops, *self.hops))


class Follower:
    """Follows names in one package."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self._depth = 0

    def follow(self, place: Place) -> Followed:
        """To an expression that is no name or attribute, or to a module, class, function, parameter or outside name."""
        self._depth += 1
        try:
            if self._depth > MAX_HOPS:
                return Followed(Stuck("names lead to each other in a circle", (place,)))
            return self._follow(place)
        finally:
            self._depth -= 1

    def _follow(self, place: Place) -> Followed:
        node = place.node
        if isinstance(node, cst.Name):
            return self.name(node.value, place.scope, node)
        if isinstance(node, cst.NamedExpr):
            return self.follow(place.at(node.value))
        if isinstance(node, cst.Attribute):
            return self.member(self.follow(place.at(node.value)), node.attr.value, node, place)
        return Followed(place)

    def lookup(self, name: str, scope: Scope) -> list[Binding]:
        """The bindings of a name as seen from a scope, innermost scope first; class bodies are seen only from themselves."""
        at: Scope | None = scope
        while at is not None:
            if name in at.bindings and (at is scope or not at.is_class) and name not in at.globals:
                return at.bindings[name]
            at = at.parent
        return []

    def name(self, name: str, scope: Scope, via: cst.CSTNode) -> Followed:
        """What a bare name stands for."""
        bindings = self.lookup(name, scope)
        if bindings:
            return self.one_of(bindings, via)
        found = self._starred(name, scope.module.scope, via)
        if found is not None:
            return found
        if hasattr(builtins, name):
            return Followed(Outside(f"builtins.{name}"))
        return Followed(Stuck(f"{name} is bound nowhere in {scope.module.path}"))

    def one_of(self, bindings: list[Binding], via: cst.CSTNode) -> Followed:
        """Follow the only binding; more than one is a choice made at run time."""
        if len(bindings) == 1:
            return self.binding(bindings[0], via)
        imports = [b for b in bindings if b.kind is Kind.IMPORT]
        ends = [self.binding(b, via) for b in imports]
        outside = {e.end.name for e in ends if isinstance(e.end, Outside)}
        rest = [b for b in bindings if b.kind is not Kind.IMPORT]
        # `try: from sglang... import Feature` with `except ImportError: Feature = None` still means SGLang's.
        if len(outside) == 1 and len(ends) == len(imports) and all(_is_none(b) for b in rest):
            return ends[0]
        return Followed(Stuck(f"{bindings[0].name} is bound {len(bindings)} times", _values(bindings)))

    def binding(self, binding: Binding, via: cst.CSTNode) -> Followed:
        """What one binding stands for."""
        hop = Hop(binding.name, via, binding)
        if binding.kind is Kind.IMPORT and binding.imported is not None:
            return self._imported(binding, binding.imported, via)
        if binding.kind is Kind.CLASS:
            return Followed(ClassAt(binding, _scope_of(binding)), (hop,))
        if binding.kind is Kind.FUNCTION:
            return Followed(FunctionAt(binding), (hop,))
        if binding.kind is Kind.PARAMETER:
            return Followed(Parameter(binding), (hop,))
        if binding.kind is Kind.VALUE and binding.value is not None:
            return self.follow(Place(binding.value, binding.value_scope)).after(hop)
        reason = f"{binding.name} is bound by a loop, unpacking, an update or elsewhere ({binding.module.path}:{binding.line})"
        return Followed(Stuck(reason))

    def _imported(self, binding: Binding, wanted: Import, via: cst.CSTNode) -> Followed:
        if binding.whole:
            wanted = Import(wanted.module.split(".")[0], 0, None)
        found = self.package.find(wanted, binding.module)
        if isinstance(found, Several):
            return Followed(Stuck(f"{wanted.module} could be any of {', '.join(found.paths)}"))
        if wanted.name is None:
            return Followed(found)
        if isinstance(found, Outside):
            inside = self._submodule(found, wanted, binding.module)
            return inside or Followed(Outside(f"{found.name}.{wanted.name}" if wanted.module else f"{found.name}{wanted.name}"))
        return self.module_member(found, wanted.name, via)

    def _submodule(self, found: Outside, wanted: Import, asking: Module) -> Followed | None:
        """``from package import module`` where the package has no ``__init__.py``."""
        name = f"{wanted.module}.{wanted.name}" if wanted.module else str(wanted.name)
        deeper = self.package.find(Import(name, wanted.level, None), asking)
        if isinstance(deeper, Several):
            return Followed(Stuck(f"{name} could be any of {', '.join(deeper.paths)}"))
        return Followed(deeper) if isinstance(deeper, Module) else None

    def module_member(self, module: Module, name: str, via: cst.CSTNode) -> Followed:
        """An attribute of a module: bound there, a sub-module, or starred in."""
        bindings = module.scope.bindings.get(name)
        if bindings:
            return self.one_of(bindings, via)
        if module.path.endswith("__init__.py"):
            deeper = self.package.find(Import(name, 1, None), module)
            if isinstance(deeper, Module):
                return Followed(deeper)
        found = self._starred(name, module.scope, via)
        return found or Followed(Stuck(f"{module.path} does not bind {name}"))

    def _starred(self, name: str, scope: Scope, via: cst.CSTNode) -> Followed | None:
        for star in scope.stars:
            found = self.package.find(star, scope.module)
            if isinstance(found, Outside) and found.name.startswith("sglang.") and not hasattr(builtins, name):
                return Followed(Outside(f"{found.name}.{name}"))
            if isinstance(found, Module):
                inner = self.module_member(found, name, via)
                if not (isinstance(inner.end, Stuck) and inner.end.reason.endswith(f"does not bind {name}")):
                    return inner
        return None

    def member(self, base: Followed, attr: str, via: cst.CSTNode, place: Place) -> Followed:
        """An attribute of whatever ``base`` is."""
        end = base.end
        if isinstance(end, Module):
            return self.module_member(end, attr, via)
        if isinstance(end, Outside):
            deeper = self.package.by_name(f"{end.name}.{attr}", place.module)
            return Followed(deeper if isinstance(deeper, Module) else Outside(f"{end.name}.{attr}"))
        if isinstance(end, ClassAt):
            return self.class_member(end, attr, via)
        if isinstance(end, Stuck):
            return Followed(end)
        if isinstance(end, Place):
            last = base.hops[-1].binding if base.hops else None
            if attr == "value" and last is not None and last.scope.is_class:
                return base
            if isinstance(end.node, cst.Call):
                return self.instance_member(end, attr, via)
        return Followed(Stuck(f"what {attr} of {place.module.code(place.node)} is cannot be told", (place,)))

    def class_member(self, owner: ClassAt, attr: str, via: cst.CSTNode) -> Followed:
        """A class attribute, inherited ones too. ``field(default=X)`` is X."""
        bindings = owner.scope.bindings.get(attr)
        if bindings:
            found = self.one_of(bindings, via)
            if isinstance(found.end, Place):
                default = _field_default(found.end)
                return self.follow(default).after(*found.hops) if default is not None else found
            return found
        node = owner.binding.node
        for base in node.bases if isinstance(node, cst.ClassDef) else ():
            parent = self.follow(Place(base.value, owner.binding.scope))
            if isinstance(parent.end, ClassAt):
                return self.class_member(parent.end, attr, via)
            if isinstance(parent.end, Outside):
                return Followed(Outside(f"{parent.end.name}.{attr}"))
        return Followed(Stuck(f"class {owner.binding.name} does not bind {attr}"))

    def instance_member(self, made: Place, attr: str, via: cst.CSTNode) -> Followed:
        """An attribute of ``Something(...)``: its keyword there, else the class's default."""
        assert isinstance(made.node, cst.Call)
        owner = self.follow(made.at(made.node.func))
        if any(arg.star for arg in made.node.args):
            return Followed(Stuck(f"{attr} may come from an unpacked argument", (made,)))
        for arg in made.node.args:
            if arg.keyword is not None and arg.keyword.value == attr:
                return self.follow(made.at(arg.value)).after(Hop(attr, via))
        if isinstance(owner.end, ClassAt):
            fields = [name for name, found in owner.end.scope.bindings.items() if found[0].kind is Kind.VALUE]
            if any(arg.keyword is None for arg in made.node.args):
                return Followed(Stuck(f"{attr} may be given by position (fields with defaults: {', '.join(fields)})", (made,)))
            if _sets_itself(owner.end, attr):
                return Followed(Stuck(f"methods of {owner.end.binding.name} set {attr}", (made,)))
            return self.class_member(owner.end, attr, via)
        return Followed(Stuck(f"what {attr} of {made.module.code(made.node)} is cannot be told", (made,)))


def _is_none(binding: Binding) -> bool:
    return isinstance(binding.value, cst.Name) and binding.value.value in ("None", "Any", "object")


def _values(bindings: list[Binding]) -> tuple[Place, ...]:
    return tuple(Place(b.value, b.value_scope) for b in bindings if b.value is not None)


def _scope_of(binding: Binding) -> Scope:
    """The body scope of a class: the one whose node is the class."""
    return binding.module.inner[id(binding.node)]


def _field_default(place: Place) -> Place | None:
    """X of ``field(default=X)``."""
    node = place.node
    if isinstance(node, cst.Call):
        name = node.func.attr.value if isinstance(node.func, cst.Attribute) else getattr(node.func, "value", "")
        if name in ("field", "Field", "attrib", "ib"):
            for arg in node.args:
                if arg.keyword is not None and arg.keyword.value == "default":
                    return place.at(arg.value)
    return None


def _sets_itself(owner: ClassAt, attr: str) -> bool:
    """Whether ``self.<attr>`` is assigned anywhere in the class's file."""
    return any(
        target.attr.value == attr and isinstance(target.value, cst.Name) and target.value.value == "self"
        for target in owner.binding.module.stored_attributes
    )
