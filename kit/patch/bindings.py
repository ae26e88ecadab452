"""What each name in one Python file is bound to, scope by scope. Pure: bytes in, scopes out (LibCST, nothing is run)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum, auto

import libcst as cst
from libcst.metadata import ByteSpanPositionProvider, MetadataWrapper, PositionProvider


class Kind(Enum):
    """How a name came to be bound."""

    VALUE = auto()
    IMPORT = auto()
    CLASS = auto()
    FUNCTION = auto()
    PARAMETER = auto()
    OTHER = auto()
    """Loops, ``with``, unpacking, ``+=``, ``del``, ``global``: bound, but not to one expression."""


@dataclass(eq=False)
class Scope:
    """A module, class or function body."""

    module: Module
    node: cst.CSTNode
    parent: Scope | None
    bindings: dict[str, list[Binding]] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)
    globals: set[str] = field(default_factory=set)

    @property
    def is_class(self) -> bool:
        """Names of a class body are not seen from its methods."""
        return isinstance(self.node, cst.ClassDef)


@dataclass(frozen=True)
class Import:
    """``from <level dots><module> import <name>``; ``name`` is None for ``import module``."""

    module: str
    level: int
    name: str | None


@dataclass(eq=False)
class Binding:
    """One way a name is bound in a scope."""

    name: str
    kind: Kind
    scope: Scope
    node: cst.CSTNode
    value: cst.BaseExpression | None = None
    """The expression bound, or a parameter's default."""
    imported: Import | None = None
    whole: bool = False
    """``import a.b`` binds ``a``: the name is the first part only."""

    @property
    def module(self) -> Module:
        return self.scope.module

    @property
    def value_scope(self) -> Scope:
        """Where the expression is evaluated: a default belongs to the enclosing scope."""
        if self.kind is Kind.PARAMETER and self.scope.parent is not None:
            return self.scope.parent
        return self.scope

    @property
    def line(self) -> int:
        return self.module.line(self.node)


@dataclass(eq=False)
class Module:
    """One parsed file. ``content`` is what was parsed, byte for byte."""

    path: str
    content: bytes
    tree: cst.Module
    foreign: bool = False
    """From the contract's files, not from the tree that is patched."""
    scope: Scope = field(init=False)
    loads: list[tuple[cst.Name, Scope]] = field(default_factory=list)
    attributes: list[tuple[cst.Attribute, Scope]] = field(default_factory=list)
    calls: list[tuple[cst.Call, Scope]] = field(default_factory=list)
    stored_attributes: list[cst.Attribute] = field(default_factory=list)
    inner: dict[int, Scope] = field(default_factory=dict)
    """The body scope of each class and function, by ``id`` of its node."""
    _lines: dict[cst.CSTNode, int] | None = None
    _spans: dict[cst.CSTNode, tuple[int, int]] | None = None

    def __post_init__(self) -> None:
        collector = _Collector(self)
        self.scope = collector.scope
        self.tree.visit(collector)

    def scopes(self) -> list[Scope]:
        """The file's own scope, then every class's and function's."""
        return [self.scope, *self.inner.values()]

    def line(self, node: cst.CSTNode) -> int:
        """The line of a node, from 1."""
        if self._lines is None:
            wrapper = MetadataWrapper(self.tree, unsafe_skip_copy=True)
            self._lines = {n: r.start.line for n, r in wrapper.resolve(PositionProvider).items()}
        return self._lines.get(node, 0)

    def span(self, node: cst.CSTNode) -> tuple[int, int]:
        """First byte and one past the last of a node, its parentheses left out."""
        if self._spans is None:
            wrapper = MetadataWrapper(self.tree, unsafe_skip_copy=True)
            spans = wrapper.resolve(ByteSpanPositionProvider).items()
            self._spans = {n: (s.start, s.start + s.length) for n, s in spans}
        return self._spans[node]

    def text_of_line(self, line: int) -> str:
        """A line of the file, trimmed."""
        lines = self.tree.code.splitlines()
        return lines[line - 1].strip() if 0 < line <= len(lines) else ""

    def code(self, node: cst.CSTNode) -> str:
        """A node as source text."""
        return self.tree.code_for_node(node)


def last_name(node: cst.BaseExpression) -> str:
    """``c`` of ``a.b.c`` and of ``c``; empty for anything else."""
    if isinstance(node, cst.Attribute):
        return node.attr.value
    return node.value if isinstance(node, cst.Name) else ""


def dotted(node: cst.BaseExpression | None) -> str:
    """``a.b.c`` of names and attributes; empty for anything else."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return f"{base}.{node.attr.value}" if base else ""
    return ""


class _Collector(cst.CSTVisitor):
    def __init__(self, module: Module) -> None:
        super().__init__()
        self.module = module
        self.scope = Scope(module, module.tree, None)
        self.stored: set[int] = set()
        self.inner: list[Scope] = []

    def bind(self, name: str, kind: Kind, node: cst.CSTNode, value: cst.BaseExpression | None = None, **more: object) -> None:
        scope = self.scope
        if name in scope.globals:
            scope = self.module.scope
            kind = Kind.OTHER
        binding = Binding(name, kind, scope, node, value)
        for key, what in more.items():
            setattr(binding, key, what)
        scope.bindings.setdefault(name, []).append(binding)

    def target(self, target: cst.CSTNode, node: cst.CSTNode, value: cst.BaseExpression | None) -> None:
        """A plain name gets its value; what is unpacked is bound to nothing that can be followed, pairs apart."""
        if isinstance(target, cst.Name):
            self.stored.add(id(target))
            self.bind(target.value, Kind.VALUE if value is not None else Kind.OTHER, node, value)
        elif isinstance(target, cst.Tuple | cst.List):
            values = value.elements if isinstance(value, cst.Tuple | cst.List) else ()
            paired = len(values) == len(target.elements) and not any(
                isinstance(e, cst.StarredElement) for e in (*values, *target.elements)
            )
            for index, element in enumerate(target.elements):
                self.target(element.value, node, values[index].value if paired else None)
        elif isinstance(target, cst.Attribute):
            self.module.stored_attributes.append(target)

    # Bindings.
    def visit_Assign(self, node: cst.Assign) -> None:
        for one in node.targets:
            self.target(one.target, node, node.value)

    def visit_AnnAssign(self, node: cst.AnnAssign) -> None:
        if node.value is not None:
            self.target(node.target, node, node.value)
        elif isinstance(node.target, cst.Name):
            self.stored.add(id(node.target))

    def visit_AugAssign(self, node: cst.AugAssign) -> None:
        self.target(node.target, node, None)

    def visit_NamedExpr(self, node: cst.NamedExpr) -> None:
        self.target(node.target, node, node.value)

    def visit_For(self, node: cst.For) -> None:
        self.target(node.target, node, None)

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.target(node.target, node, None)

    def visit_Del(self, node: cst.Del) -> None:
        self.target(node.target, node, None)

    def visit_AsName(self, node: cst.AsName) -> None:
        self.target(node.name, node, None)

    def visit_Global(self, node: cst.Global) -> bool:
        self.scope.globals |= {item.name.value for item in node.names}
        return False

    def visit_Import(self, node: cst.Import) -> bool:
        for alias in node.names:
            full = dotted(alias.name)
            if alias.asname is not None and isinstance(alias.asname.name, cst.Name):
                self.bind(alias.asname.name.value, Kind.IMPORT, node, imported=Import(full, 0, None))
            else:
                self.bind(full.split(".")[0], Kind.IMPORT, node, imported=Import(full, 0, None), whole=True)
        return False

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        base, level = dotted(node.module), len(node.relative)
        if isinstance(node.names, cst.ImportStar):
            self.scope.stars.append(Import(base, level, None))
            return False
        for alias in node.names:
            name = dotted(alias.name)
            known = alias.asname.name if alias.asname is not None else alias.name
            self.bind(dotted(known), Kind.IMPORT, node, imported=Import(base, level, name))
        return False

    # Scopes.
    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.stored.add(id(node.name))
        self.bind(node.name.value, Kind.CLASS, node)
        self._enter(node)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self._leave()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.stored.add(id(node.name))
        self.bind(node.name.value, Kind.FUNCTION, node)
        self._enter(node)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self._leave()

    def visit_Lambda(self, node: cst.Lambda) -> None:
        self._enter(node)

    def leave_Lambda(self, original_node: cst.Lambda) -> None:
        self._leave()

    def _enter(self, node: cst.CSTNode) -> None:
        self.scope = Scope(self.module, node, self.scope)
        self.module.inner[id(node)] = self.scope

    def _leave(self) -> None:
        if self.scope.parent is not None:
            self.scope = self.scope.parent

    def visit_Param(self, node: cst.Param) -> None:
        self.stored.add(id(node.name))
        self.bind(node.name.value, Kind.PARAMETER, node, node.default)

    def visit_Param_default(self, node: cst.Param) -> None:
        """A default is evaluated outside the function that it belongs to."""
        self.inner.append(self.scope)
        self._leave()

    def leave_Param_default(self, node: cst.Param) -> None:
        self.scope = self.inner.pop()

    # Uses.
    def visit_Arg(self, node: cst.Arg) -> None:
        if node.keyword is not None:
            self.stored.add(id(node.keyword))

    def visit_Attribute(self, node: cst.Attribute) -> None:
        self.stored.add(id(node.attr))
        self.module.attributes.append((node, self.scope))

    def visit_Name(self, node: cst.Name) -> None:
        if id(node) not in self.stored:
            self.module.loads.append((node, self.scope))

    def visit_Call(self, node: cst.Call) -> None:
        self.module.calls.append((node, self.scope))
