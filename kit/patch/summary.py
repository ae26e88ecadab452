"""Which names a Python file uses at all: a quick look with this Python's parser, to know which files need a slow one. Pure."""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass
class Summary:
    """Names of one file, without scopes."""

    calls: set[str] = field(default_factory=set)
    """Last part of what is called."""
    loads: set[str] = field(default_factory=set)
    """Plain names read, and names of attributes, read or stored."""
    keywords: set[str] = field(default_factory=set)
    """Argument names given at calls."""
    known_as: dict[str, set[str]] = field(default_factory=dict)
    """Name -> names under which it is known here: imports ``as``, re-assignments, subclasses."""


@dataclass(frozen=True)
class NoSummary:
    """This Python's parser does not read the file: a syntax error, or a newer syntax."""

    line: int
    reason: str


@lru_cache(maxsize=8192)
def syntax_error(content: bytes) -> NoSummary | None:
    """Why this Python cannot compile a file; None when it can. Compiling is quicker than building a tree, and sees more."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(content, "file", "exec", dont_inherit=True)
    except SyntaxError as error:
        return NoSummary(error.lineno or 0, error.msg)
    except (ValueError, RecursionError) as error:
        return NoSummary(0, str(error))
    return None


@lru_cache(maxsize=4096)
def summary(content: bytes) -> Summary | NoSummary:
    """A look at one file."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError) as error:
        return NoSummary(getattr(error, "lineno", None) or 0, str(error))
    out = Summary()
    # ast.walk asks each node for its fields by name; this is twice as quick, and the trees are large.
    stack: list[object] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack += node
        elif isinstance(node, ast.AST):
            if type(node) in _TAKEN:
                _take(node, out)
            stack += vars(node).values()
    return out


_TAKEN = {
    ast.Name,
    ast.Attribute,
    ast.Call,
    ast.keyword,
    ast.Import,
    ast.ImportFrom,
    ast.Assign,
    ast.AnnAssign,
    ast.NamedExpr,
    ast.ClassDef,
}


def _take(node: ast.AST, out: Summary) -> None:
    if isinstance(node, ast.Name):
        out.loads.add(node.id)
    elif isinstance(node, ast.Attribute):
        out.loads.add(node.attr)
    elif isinstance(node, ast.Call):
        out.calls.add(_last(node.func))
    elif isinstance(node, ast.keyword):
        out.keywords.add(node.arg or "")
    elif isinstance(node, ast.Import | ast.ImportFrom):
        for alias in node.names:
            out.known_as.setdefault(alias.name, set()).add(alias.asname or alias.name)
    elif isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and node.value is not None:
                out.known_as.setdefault(_last(node.value), set()).add(target.id)
    elif isinstance(node, ast.ClassDef):
        for base in node.bases:
            out.known_as.setdefault(_last(base), set()).add(node.name)


def _last(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
