"""Runs the burn-in's PTX for one thread, in Python: there is no GPU where these tests run. Only what those programs use."""

from __future__ import annotations

import re

ALL = (1 << 64) - 1
Memory = dict[int, int]
"""Byte address -> 64-bit word."""


def run(text: str, entry: str, arguments: dict[str, int], block: int, thread: int, memory: Memory) -> None:
    """One thread. Raises KeyError for a word that was never written, ValueError for an instruction that is not known."""
    body = re.search(rf"\.entry {entry}\(.*?\{{(.*?)\n\}}", text, re.DOTALL)
    assert body is not None
    lines = [line.strip().rstrip(";") for line in body.group(1).splitlines()]
    registers: dict[str, int] = {"%ctaid.x": block, "%tid.x": thread}
    at = 0
    while lines[at] != "ret":
        line, at = lines[at], at + 1
        if not line or line.startswith(".reg") or line.endswith(":"):
            continue
        guarded = re.match(r"@(%\w+) bra (\w+)", line)
        if guarded:
            if registers[guarded.group(1)]:
                at = lines.index(f"{guarded.group(2)}:")
            continue
        _step(line, registers, arguments, memory)


def _step(line: str, registers: dict[str, int], arguments: dict[str, int], memory: Memory) -> None:
    name, rest = line.split(" ", 1)

    def value(word: str) -> int:
        return registers[word] if word.startswith("%") else int(word.rstrip("U"), 0)

    def address(word: str) -> int:
        register, _, offset = word.strip("[]").partition("+")
        return registers[register] + int(offset or 0)

    pair = re.match(r"(?:\{(%\w+), (%\w+)\}, (\[.+\])|(\[.+\]), \{(%\w+), (%\w+)\})$", rest)
    if name == "ld.global.v2.u64" and pair:
        where = address(pair.group(3))
        registers[pair.group(1)], registers[pair.group(2)] = memory[where], memory[where + 8]
        return
    if name == "st.global.v2.u64" and pair:
        where = address(pair.group(4))
        memory[where], memory[where + 8] = registers[pair.group(5)], registers[pair.group(6)]
        return
    words = rest.split(", ")
    if name == "ld.param.u64":
        registers[words[0]] = arguments[words[1].strip("[]")]
    elif name.startswith("red.global."):
        where, new = address(words[0]), value(words[1])
        memory[where] = min(memory[where], new) if ".min." in name else memory[where] + new
    else:
        registers[words[0]] = _arithmetic(name, [value(word) for word in words[1:]])


def _arithmetic(name: str, v: list[int]) -> int:
    operations = {
        "cvta.to.global.u64": lambda: v[0],
        "mov.u32": lambda: v[0],
        "mov.u64": lambda: v[0],
        "mov.b64": lambda: v[0],
        "mul.wide.u32": lambda: v[0] * v[1],
        "mul.lo.u64": lambda: v[0] * v[1],
        "add.u64": lambda: v[0] + v[1],
        "shl.b64": lambda: v[0] << v[1],
        "shr.u64": lambda: v[0] >> v[1],
        "xor.b64": lambda: v[0] ^ v[1],
        "and.b64": lambda: v[0] & v[1],
        "setp.eq.u64": lambda: int(v[0] == v[1]),
    }
    if name not in operations:
        raise ValueError(f"not known: {name}")
    return operations[name]() & ALL
