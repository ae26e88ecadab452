"""NCCL all-reduce over all GPUs of this host: bus bandwidth as nccl-tests count it. A child process.

NCCL is often in the engine's image only. Then run this alone inside a container of it, with no engine running:
``python -m kit.facts.probe --nccl | docker run -i --rm --gpus all IMAGE python3 -I - libnccl.so.2``.
"""

from __future__ import annotations

import ctypes
import os
import struct
import sys
import time
from collections.abc import Sequence
from typing import Any

from kit.facts.host.burn_clocks import Clocks
from kit.facts.host.burn_gpu import GIB, Gpu, Pattern, every_gpu, figure
from kit.facts.host.child import answer, die_with_parent, doing
from kit.facts.host.read import Json, Unreadable, fact

LIBRARY = "libnccl.so.2"
SETTINGS = "NCCL_"
"""Of the environment: whoever runs the script by hand may have set some, and they are part of the figure."""
_FLOAT32, _SUM = 7, 0
_WARM_UP, _REPEATS, _CALLS = 3, 10, 5


class Nccl:
    """The library, loaded. Raises Unreadable when it is not there."""

    def __init__(self, path: str) -> None:
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise Unreadable(f"{path} not on the host: {error}") from None
        self.library.ncclGetErrorString.restype = ctypes.c_char_p

    def call(self, function: str, *arguments: Any) -> None:
        """Raises Unreadable unless the function answers success."""
        code = getattr(self.library, function)(*arguments)
        if code != 0:
            said = self.library.ncclGetErrorString(ctypes.c_int(code))
            raise Unreadable(f"{function}: error {code} ({said.decode() if said else 'unknown'})")

    def version(self) -> str:
        """``2.28.3``; NCCL's number is 22803."""
        value = ctypes.c_int()
        self.call("ncclGetVersion", ctypes.byref(value))
        return f"{value.value // 10000}.{value.value // 100 % 100}.{value.value % 100}"


def sum_of_ones(count: int) -> Pattern:
    """What each word pair holds after ones in float32 were added up over ``count`` GPUs. Pure."""
    (word,) = struct.unpack("<I", struct.pack("<f", float(count)))
    return Pattern("sum", 0, word << 32 | word)


def _all_reduce(nccl: Nccl, gpus: Sequence[Gpu], communicators: Any, buffers: Sequence[tuple[int, int]]) -> None:
    """Queue one, out of place: in place the values would grow with each."""
    nccl.call("ncclGroupStart")
    for gpu, communicator, (source, target) in zip(gpus, communicators, buffers):
        memory = (ctypes.c_void_p(source), ctypes.c_void_p(target), ctypes.c_size_t(GIB // 4))
        nccl.call("ncclAllReduce", *memory, ctypes.c_int(_FLOAT32), ctypes.c_int(_SUM), ctypes.c_void_p(communicator), gpu.stream)
    nccl.call("ncclGroupEnd")


def measure(path: str) -> Json:
    """See ``kit.facts.burn_in_model.AllReduce``. Raises Unreadable."""
    doing("loading NCCL")
    nccl = Nccl(path)
    doing("starting CUDA")
    gpus = every_gpu()
    count = len(gpus)
    if count < 2:
        raise Unreadable(f"{count} GPU: nothing to reduce over")
    clocks = Clocks()
    before = [clocks.sm_mhz(gpu.bus_id) for gpu in gpus]
    buffers = [(gpu.allocate(GIB), gpu.allocate(GIB)) for gpu in gpus]
    one = struct.unpack("<I", struct.pack("<f", 1.0))[0]
    for gpu, (source, target) in zip(gpus, buffers):
        gpu.fill_words(source, GIB, one)
        gpu.fill_words(target, GIB, 0)
        gpu.synchronize()
    doing(f"NCCL {nccl.version()}: connecting {count} GPUs")
    communicators = (ctypes.c_void_p * count)()
    nccl.call("ncclCommInitAll", communicators, ctypes.c_int(count), (ctypes.c_int * count)(*range(count)))
    try:
        doing(f"NCCL {nccl.version()}: all-reduce over {count} GPUs")
        for _ in range(_WARM_UP):
            _all_reduce(nccl, gpus, communicators, buffers)
        wrong = 0
        for gpu, (_, target) in zip(gpus, buffers):
            gpu.check(target, GIB, sum_of_ones(count))
            wrong += gpu.wrong()[0]
        seconds = []
        for _ in range(_REPEATS):
            began = time.perf_counter()
            for _ in range(_CALLS):
                _all_reduce(nccl, gpus, communicators, buffers)
            for gpu in gpus:
                gpu.synchronize()
            seconds.append((time.perf_counter() - began) / _CALLS)
        after = [clocks.sm_mhz(gpu.bus_id) for gpu in gpus]
    finally:
        for communicator in communicators:
            nccl.call("ncclCommDestroy", ctypes.c_void_p(communicator))
    bus = figure(GIB, [taken / (2 * (count - 1) / count) for taken in seconds])
    return {
        "library": path,
        "version": nccl.version(),
        "gpus": count,
        "element": "float32",
        "bus": bus,
        "wrong_words": wrong,
        "settings": {name: value for name, value in sorted(os.environ.items()) if name.startswith(SETTINGS)},
        "sm_mhz_before": before,
        "sm_mhz_after": after,
    }


def main() -> int:
    """Child process; argument: the library."""
    die_with_parent()
    return answer(fact(lambda: measure(sys.argv[1])))
