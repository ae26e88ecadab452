"""The plugin's default slots, read from its source where it reads the variable. Nothing is imported; nothing is guessed."""

from __future__ import annotations

import libcst as cst

from kit.errors import Failure, failure
from kit.patch.answer import site
from kit.patch.bindings import Kind, Module
from kit.patch.follow import Place, Stuck
from kit.patch.package import Package
from kit.patch.python_edits import PythonEdits
from kit.patch.tree import Tree, tree_sha256
from kit.slots.model import Provenance, Slots, SlotsDeclared
from kit.slots.strings import Strings


def derive(tree: Tree, declared: SlotsDeclared) -> Slots | tuple[Failure, ...]:
    """The slots of a plugin tree, or every reason why they cannot be told."""
    package = Package(tree)
    broken = package.broken()
    if broken:
        return tuple(failure("slots.unreadable", str(b), "Python", b.reason, "get an intact release") for b in broken)
    edits = PythonEdits(package)
    strings = Strings(edits.follower, edits.uses, declared.separator)
    reads = _reads(package, strings, declared.variable)
    if not reads and not list(package.mentioning({declared.variable})):
        found = "read nowhere in the plugin"
        return (failure("slots.not_read", declared.variable, "read by the plugin", found, "check the plugin's version"),)
    wrong = _separators(package, strings, declared)
    if wrong:
        return wrong
    places = _defaults(package, strings, reads, declared)
    if isinstance(places, Failure):
        return (places,)
    answers = {found: place for place, found in ((p, strings.of(p)) for p in places) if not isinstance(found, Stuck)}
    stuck = [found for found in (strings.of(p) for p in places) if isinstance(found, Stuck)]
    if stuck or len(answers) != 1:
        reason = stuck[0].reason if stuck else f"{len(answers)} different defaults"
        where = ", ".join(f"{s.file}:{s.line}" for s in (site(p) for p in places))
        next_step = "name them in slots.yml: defaults-at: module:NAME"
        return (failure("slots.not_derivable", where, "one list of default slots", reason, next_step),)
    ((names, place),) = answers.items()
    hashes = tree.hashes(with_edits=True)
    return Slots(
        variable=declared.variable,
        separator=declared.separator,
        defaults=names,
        known=tuple(sorted({*names, *_known(package, strings, names, declared.opt_in)})),
        provenance=Provenance(tree_sha256=tree_sha256(hashes, tree.links), file=place.module.path, line=place.line),
    )


def _reads(package: Package, strings: Strings, variable: str) -> list[Place]:
    """Calls and subscripts that are given the variable's name."""
    out: list[Place] = []
    names = {variable, *_constants(package, strings, variable)}
    for module in package.mentioning(names):
        for call, scope in module.calls:
            if call.args and strings.text(Place(call.args[0].value, scope)) == variable:
                out.append(Place(call, scope))
    return out


def _constants(package: Package, strings: Strings, variable: str) -> set[str]:
    """Names bound to the variable's name, and what they are imported as."""
    names = {
        name
        for module in package.mentioning({variable})
        for name, bindings in module.scope.bindings.items()
        if any(b.value is not None and strings.text(Place(b.value, b.value_scope)) == variable for b in bindings)
    }
    return strings.uses.aliases(names) if names else set()


def _separators(package: Package, strings: Strings, declared: SlotsDeclared) -> tuple[Failure, ...]:
    """A ``.split(X)`` in a module that reads the variable must split at the declared separator."""
    out: list[Failure] = []
    for module in package.mentioning({declared.variable}):
        for call, scope in module.calls:
            if isinstance(call.func, cst.Attribute) and call.func.attr.value == "split":
                used = strings.text(Place(call.args[0].value, scope)) if call.args else " "
                if used is not None and used.strip() != declared.separator.strip():
                    where = f"{module.path}:{module.line(call)}"
                    next_step = "correct separator in slots.yml"
                    out.append(failure("slots.separator", where, repr(declared.separator), repr(used), next_step))
    return tuple(out)


def _defaults(package: Package, strings: Strings, reads: list[Place], declared: SlotsDeclared) -> list[Place] | Failure:
    """The expressions that stand in when the variable is not set."""
    if declared.defaults_at is not None:
        name, _, attribute = declared.defaults_at.partition(":")
        module = package.by_name(name)
        if isinstance(module, Module) and attribute in module.scope.bindings:
            bindings = module.scope.bindings[attribute]
            if len(bindings) == 1 and bindings[0].value is not None:
                return [Place(bindings[0].value, module.scope)]
        return failure(
            "slots.defaults_at", declared.defaults_at, "module:NAME of the plugin", "no such name", "correct slots.yml"
        )
    found = [
        Place(call.node.args[1].value, call.scope)
        for call in reads
        if isinstance(call.node, cst.Call) and len(call.node.args) > 1
    ]
    found = [place for place in found if not (isinstance(place.node, cst.Name) and place.node.value == "None")]
    found += [fallback for call in reads for fallback in _fallbacks(call)]
    found = [p for p in found if strings.text(p) != ""]
    if found:
        return found
    where = ", ".join(f"{s.file}:{s.line}" for s in (site(p) for p in reads)) or declared.variable
    candidates = ", ".join(_candidates(package, strings, declared.expected_defaults)) or "none of that length"
    return failure("slots.not_derivable", where, "a default beside the variable", f"candidates: {candidates}", "set defaults-at")


def _fallbacks(read: Place) -> list[Place]:
    """``D`` of ``read or D``, and of ``D if name is None else ...`` where ``name`` is bound to the read."""
    finder = _Fallback(read)
    read.module.tree.visit(finder)
    return [Place(node, read.scope) for node in finder.found]


class _Fallback(cst.CSTVisitor):
    def __init__(self, read: Place) -> None:
        super().__init__()
        self.read = read
        self.found: list[cst.BaseExpression] = []
        self.names = {
            name
            for name, bindings in read.scope.bindings.items()
            if any(b.kind is Kind.VALUE and (b.value is read.node) for b in bindings)
        }

    def is_read(self, node: cst.BaseExpression) -> bool:
        """The read itself, or a name bound to it."""
        return node is self.read.node or (isinstance(node, cst.Name) and node.value in self.names)

    def visit_BooleanOperation(self, node: cst.BooleanOperation) -> None:
        if isinstance(node.operator, cst.Or) and self.is_read(node.left):
            self.found.append(node.right)

    def visit_IfExp(self, node: cst.IfExp) -> None:
        test = node.test
        if isinstance(test, cst.Comparison) and self.is_read(test.left) and len(test.comparisons) == 1:
            negative = isinstance(test.comparisons[0].operator, cst.IsNot)
            self.found.append(node.orelse if negative else node.body)
        elif self.is_read(test):
            self.found.append(node.orelse)
        elif isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not) and self.is_read(test.expression):
            self.found.append(node.body)


def _collections(package: Package, strings: Strings, words: set[str]) -> list[tuple[Module, str, tuple[str, ...]]]:
    """Module-level names bound to strings, in modules that mention one of the words."""
    out = []
    for module in package.mentioning(words):
        for name, bindings in module.scope.bindings.items():
            value = bindings[0].value if len(bindings) == 1 and bindings[0].kind in (Kind.VALUE, Kind.CLASS) else None
            place = Place(value, module.scope) if value is not None else None
            if bindings[0].kind is Kind.CLASS and len(bindings) == 1:
                place = Place(cst.Name(name), module.scope)
            found = strings.of(place) if place is not None else Stuck("")
            if not isinstance(found, Stuck) and len(found) > 0:
                out.append((module, name, found))
    return out


def _candidates(package: Package, strings: Strings, length: int) -> list[str]:
    found = _collections(package, strings, {"slot", "slots", "Slot", "SLOT", "SLOTS", "DEFAULT_SLOTS", "DEFAULTS"})
    return sorted(
        f"{module.path}:{module.line(module.scope.bindings[n][0].node)} {n}" for module, n, s in found if len(s) == length
    )


def _known(package: Package, strings: Strings, defaults: tuple[str, ...], opt_in: str) -> set[str]:
    """Slots beyond the defaults: of collections that hold the opt-in or all defaults, and the opt-in where it is compared."""
    out: set[str] = set()
    for _, _, names in _collections(package, strings, {opt_in, defaults[0] if defaults else opt_in}):
        if opt_in in names or set(defaults) <= set(names):
            out |= set(names)
    for module in package.mentioning({opt_in}):
        finder = _Literal(opt_in)
        module.tree.visit(finder)
        if finder.there:
            out.add(opt_in)
    return out


class _Literal(cst.CSTVisitor):
    """Whether a string is compared or looked up as code: a docstring that mentions it is no proof."""

    def __init__(self, wanted: str) -> None:
        super().__init__()
        self.wanted = wanted
        self.there = False

    def take(self, node: cst.BaseExpression) -> None:
        """Note an exact literal."""
        if isinstance(node, cst.SimpleString) and node.evaluated_value == self.wanted:
            self.there = True

    def visit_Comparison(self, node: cst.Comparison) -> None:
        self.take(node.left)
        for target in node.comparisons:
            self.take(target.comparator)
