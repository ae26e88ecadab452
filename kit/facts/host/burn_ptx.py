"""The two GPU programs of the burn-in as PTX text: write a pattern, count the words that differ from it.

PTX is assembled by the driver on the host, so neither a compiler nor CUDA's toolkit is needed there, and a GPU newer than
this text runs it too. Each thread handles four pairs of 64-bit words, ``BLOCK_BYTES`` a block, so there is no loop.

A word holds ``((n * K) ^ (n * K >> 32)) & mask ^ flip`` with ``n`` its number plus a seed. K is odd, so no two words of one
fill are alike: an address line that is stuck shows as well as a bit that is. A mask of zero gives a plain repeated word.
"""

from __future__ import annotations

THREADS = 256
BLOCK_BYTES = THREADS * 4 * 16
FILL, CHECK = "b300kit_fill", "b300kit_check"
_K = 0x9E3779B97F4A7C15

_HEAD = """
    .reg .pred %right;
    .reg .b32 %block, %thread;
    .reg .b64 %at, %start, %seed, %mask, %flip, %result, %word, %bytes, %here, %want, %high, %one;
    .reg .b64 %a<8>;
    ld.param.u64 %at, [p_at];
    ld.param.u64 %start, [p_start];
    ld.param.u64 %seed, [p_seed];
    ld.param.u64 %mask, [p_mask];
    ld.param.u64 %flip, [p_flip];
    cvta.to.global.u64 %at, %at;
    mov.u32 %block, %ctaid.x;
    mov.u32 %thread, %tid.x;
    mul.wide.u32 %word, %block, 2048;
    mul.wide.u32 %bytes, %thread, 2;
    add.u64 %word, %word, %bytes;
    shl.b64 %bytes, %word, 3;
    add.u64 %at, %at, %bytes;
    add.u64 %start, %start, %word;
"""


def _wanted(word: int) -> str:
    """What the thread's word must hold, into %want; its number into %here."""
    return f"""
    add.u64 %here, %start, {word // 2 * THREADS * 2 + word % 2};
    add.u64 %want, %here, %seed;
    mul.lo.u64 %want, %want, {_K:#x}U;
    shr.u64 %high, %want, 32;
    xor.b64 %want, %want, %high;
    and.b64 %want, %want, %mask;
    xor.b64 %want, %want, %flip;
"""


def _fill() -> str:
    return "".join(
        f"{_wanted(2 * pair)}    mov.b64 %a0, %want;\n{_wanted(2 * pair + 1)}"
        f"    st.global.v2.u64 [%at+{pair * THREADS * 16}], {{%a0, %want}};\n"
        for pair in range(4)
    )


def _check() -> str:
    loads = "".join(f"    ld.global.v2.u64 {{%a{2 * n}, %a{2 * n + 1}}}, [%at+{n * THREADS * 16}];\n" for n in range(4))
    compares = "".join(
        f"""{_wanted(word)}    setp.eq.u64 %right, %want, %a{word};
    @%right bra RIGHT{word};
    red.global.add.u64 [%result], %one;
    red.global.min.u64 [%result+8], %here;
RIGHT{word}:
"""
        for word in range(8)
    )
    result = "    ld.param.u64 %result, [p_result];\n    cvta.to.global.u64 %result, %result;\n    mov.u64 %one, 1;\n"
    return result + loads + compares


def _entry(name: str, body: str, *further: str) -> str:
    names = ("p_at", "p_start", "p_seed", "p_mask", "p_flip", *further)
    parameters = ", ".join(f".param .u64 {p}" for p in names)
    return f".visible .entry {name}({parameters})\n.maxntid {THREADS}, 1, 1\n{{{_HEAD}{body}    ret;\n}}\n"


def text() -> bytes:
    """Both programs, NUL at the end as the driver wants it. sm_80: the oldest that any driver of today still takes."""
    head = ".version 7.0\n.target sm_80\n.address_size 64\n"
    return (head + _entry(FILL, _fill()) + _entry(CHECK, _check(), "p_result")).encode() + b"\0"
