"""Named integer constants of C, C++ and CUDA text. Pure: bytes in, constants out; no preprocessor is run."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import lru_cache

C_SUFFIXES = (".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".cu", ".c", ".cc", ".cpp", ".cxx")

_BLANK = re.compile(rb"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'", re.DOTALL)
_ARITHMETIC = rb"[-+*/%<>&|()0-9xXa-fA-FuUlL \t']+?"
_DEFINE = re.compile(
    rb"^[ \t]*#[ \t]*define[ \t]+(?P<name>[A-Za-z_]\w*)[ \t]+(?P<expr>" + _ARITHMETIC + rb")[ \t]*\r?$", re.MULTILINE
)
_ASSIGN = re.compile(
    rb"(?<![\w.>\]])(?P<name>[A-Za-z_]\w*)[ \t\r\n]*(?:=[ \t\r\n]*(?P<expr>" + _ARITHMETIC + rb")[ \t\r\n]*(?=[;,}])"
    rb"|\{[ \t\r\n]*(?P<braced>" + _ARITHMETIC + rb")[ \t\r\n]*\}[ \t\r\n]*(?=;))"
)
_NUMBER = re.compile(r"\b(0[xX][0-9a-fA-F']+|[0-9][0-9']*)([uUlLzZ]*)\b")
_FIXED = re.compile(rb"\b(?:constexpr|const|constinit|consteval|enum)\b")
_LAUNCH = re.compile(rb"<<<[^;]*>>>")


@dataclass(frozen=True)
class Constant:
    """``name`` has ``value``, written at bytes ``start`` to ``end``. ``fixed`` is false for a plain variable."""

    name: str
    value: int
    start: int
    end: int
    line: int
    fixed: bool


def blanked(content: bytes) -> bytes:
    """The text with comments and string literals blanked, every byte where it was."""
    return _BLANK.sub(lambda m: re.sub(rb"[^\n]", b" ", m.group()), content)


@lru_cache(maxsize=4096)
def constants(content: bytes) -> tuple[Constant, ...]:
    """Every ``#define NAME n``, ``type NAME = n``, ``NAME{n};`` and enumerator ``NAME = n`` whose ``n`` is plain arithmetic."""
    code = blanked(content)
    out: dict[tuple[int, int], Constant] = {}
    for pattern in (_DEFINE, _ASSIGN):
        for match in pattern.finditer(code):
            group = "expr" if match["expr"] is not None else "braced"
            value = evaluate(match[group].decode("ascii"))
            if value is not None:
                start, end = match.span(group)
                at = match.start("name")
                before = code[code.rfind(b"\n", 0, at) + 1 : at]
                fixed = bool(_FIXED.search(before)) or pattern is _DEFINE or code[:at].rstrip().endswith((b"{", b","))
                out[(start, end)] = Constant(
                    match["name"].decode("ascii"), value, start, end, code.count(b"\n", 0, at) + 1, fixed
                )
    return tuple(sorted(out.values(), key=lambda c: c.start))


def launches(content: bytes, value: int) -> list[int]:
    """Lines where a kernel is launched with the bare number."""
    code = blanked(content)
    word = re.compile(rb"\b%d\b" % value)
    return [code.count(b"\n", 0, m.start()) + 1 for m in _LAUNCH.finditer(code) if word.search(m.group())]


def evaluate(text: str) -> int | None:
    """Integer arithmetic of C as a number; None for anything else, and for what C and Python compute differently."""
    plain = _NUMBER.sub(lambda m: m[1].replace("'", ""), text).strip()
    if re.search(r"\b0[0-9]", plain):
        return None
    try:
        return _number(ast.parse(plain, mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError, RecursionError):
        return None


def _number(node: ast.expr) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return -_number(node.operand) if isinstance(node.op, ast.USub) else _number(node.operand)
    if isinstance(node, ast.BinOp):
        left, right = _number(node.left), _number(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div | ast.FloorDiv) and left >= 0 and right > 0:
            return left // right
        if isinstance(node.op, ast.LShift) and 0 <= right < 64:
            return left << right
    raise ValueError("no plain arithmetic")
