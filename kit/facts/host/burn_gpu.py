"""A GPU at work through the CUDA driver's interface: its context, memory, copies, patterns and times.

Used in child processes only: any call here can hang in the kernel. What a process leaves behind, the driver frees at its end.
"""

from __future__ import annotations

import ctypes
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from kit.facts.host import burn_ptx
from kit.facts.host.cuda import Cuda
from kit.facts.host.read import Json, fact

GIB = 1 << 30
_ALL = (1 << 64) - 1
_NON_BLOCKING = 1
_ALREADY_ENABLED = 704


class Pattern(NamedTuple):
    """What to write: see ``burn_ptx``."""

    name: str
    mask: int
    flip: int


ADDRESS = Pattern("address", _ALL, 0)
PATTERNS = (ADDRESS, Pattern("address complement", _ALL, _ALL), Pattern("0xaa", 0, _ALL // 3 * 2), Pattern("0x55", 0, _ALL // 3))


class Gpu:
    """One CUDA device, with its primary context and one stream. Everything raises Unreadable when CUDA does not succeed."""

    def __init__(self, cuda: Cuda, ordinal: int) -> None:
        self.cuda, self.ordinal = cuda, ordinal
        self.device = cuda.integer("cuDeviceGet", ctypes.c_int(ordinal))
        buffer = ctypes.create_string_buffer(32)
        cuda.call("cuDeviceGetPCIBusId", buffer, ctypes.c_int(len(buffer)), ctypes.c_int(self.device))
        self.bus_id = buffer.value.decode()
        self.context = self._handle("cuDevicePrimaryCtxRetain", ctypes.c_int(self.device))
        self.use()
        self.stream = self._handle("cuStreamCreate", ctypes.c_uint(_NON_BLOCKING))
        module = self._handle("cuModuleLoadData", burn_ptx.text())
        self._fill = self._handle("cuModuleGetFunction", module, burn_ptx.FILL.encode())
        self._check = self._handle("cuModuleGetFunction", module, burn_ptx.CHECK.encode())
        self._events = (self._handle("cuEventCreate", ctypes.c_uint(0)), self._handle("cuEventCreate", ctypes.c_uint(0)))
        self._result = self.allocate(16)
        self.forget_wrong()

    def _handle(self, function: str, *after: Any) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        self.cuda.call(function, ctypes.byref(handle), *after)
        return handle

    def use(self) -> None:
        """Make it the current one of this thread."""
        self.cuda.call("cuCtxSetCurrent", self.context)

    def memory(self) -> tuple[int, int]:
        """(free, total) bytes."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self.use()
        self.cuda.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        """Address of ``size`` bytes."""
        address = ctypes.c_uint64()
        self.use()
        self.cuda.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(size))
        return address.value

    def free(self, address: int) -> None:
        """Give memory back."""
        self.use()
        self.cuda.call("cuMemFree_v2", ctypes.c_uint64(address))

    def synchronize(self) -> None:
        """Wait for everything queued so far."""
        self.use()
        self.cuda.call("cuStreamSynchronize", self.stream)

    def fill(self, address: int, size: int, pattern: Pattern, seed: int = 0, start: int = 0) -> None:
        """Queue: write the pattern. ``start``: number of the first word; ``size``: a multiple of ``BLOCK_BYTES``."""
        self._launch(self._fill, size, address, start, seed, pattern.mask, pattern.flip)

    def check(self, address: int, size: int, pattern: Pattern, seed: int = 0, start: int = 0) -> None:
        """Queue: compare with the pattern; what differs is added to :meth:`wrong`."""
        self._launch(self._check, size, address, start, seed, pattern.mask, pattern.flip, self._result)

    def _launch(self, function: ctypes.c_void_p, size: int, *values: int) -> None:
        arguments = [ctypes.c_uint64(value) for value in values]
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(argument) for argument in arguments])
        one, blocks, none = ctypes.c_uint(1), ctypes.c_uint(size // burn_ptx.BLOCK_BYTES), ctypes.c_uint(0)
        shape = (blocks, one, one, ctypes.c_uint(burn_ptx.THREADS), one, one)
        self.use()
        self.cuda.call("cuLaunchKernel", function, *shape, none, self.stream, pointers, None)

    def forget_wrong(self) -> None:
        """Start counting from zero."""
        self._set(self._result, 0)
        self._set(self._result + 8, 0xFFFFFFFF)
        self.synchronize()

    def _set(self, address: int, word: int) -> None:
        self.fill_words(address, 8, word)

    def fill_words(self, address: int, size: int, word: int) -> None:
        """Queue: write one 32-bit word all over."""
        self.use()
        arguments = (ctypes.c_uint64(address), ctypes.c_uint(word), ctypes.c_size_t(size // 4))
        self.cuda.call("cuMemsetD32Async", *arguments, self.stream)

    def wrong(self) -> tuple[int, int | None]:
        """(words that differed, number of the lowest of them), after waiting for everything queued."""
        self.synchronize()
        found = (ctypes.c_uint64 * 2)()
        self.cuda.call("cuMemcpyDtoH_v2", found, ctypes.c_uint64(self._result), ctypes.c_size_t(16))
        return int(found[0]), int(found[1]) if found[0] else None

    def copy(self, target: int, source: int, size: int) -> None:
        """Queue: copy within this GPU."""
        self.use()
        arguments = (ctypes.c_uint64(target), ctypes.c_uint64(source), ctypes.c_size_t(size))
        self.cuda.call("cuMemcpyDtoDAsync_v2", *arguments, self.stream)

    def copy_to(self, other: Gpu, target: int, source: int, size: int) -> None:
        """Queue on this GPU: copy from it to another."""
        self.use()
        into, out = (ctypes.c_uint64(target), other.context), (ctypes.c_uint64(source), self.context)
        self.cuda.call("cuMemcpyPeerAsync", *into, *out, ctypes.c_size_t(size), self.stream)

    def reach(self, other: Gpu) -> bool:
        """Whether this GPU can address the other's memory; switches it on where it can."""
        able = self.cuda.integer("cuDeviceCanAccessPeer", ctypes.c_int(self.device), ctypes.c_int(other.device))
        if not able:
            return False
        self.use()
        self.cuda.call("cuCtxEnablePeerAccess", other.context, ctypes.c_uint(0), good=(0, _ALREADY_ENABLED))
        return True

    def begin(self) -> None:
        """Queue: start the clock."""
        self._record(0)

    def end(self) -> None:
        """Queue: stop the clock."""
        self._record(1)

    def _record(self, which: int) -> None:
        self.use()
        self.cuda.call("cuEventRecord", self._events[which], self.stream)

    def seconds(self) -> float:
        """Between begin and end, on the GPU's own clock, after waiting for both."""
        self.synchronize()
        milliseconds = ctypes.c_float()
        self.cuda.call("cuEventElapsedTime", ctypes.byref(milliseconds), *self._events)
        return milliseconds.value / 1000.0

    def timed(self, work: Callable[..., None], *arguments: Any) -> float:
        """Seconds that the GPU spent on what ``work`` queues."""
        self.begin()
        work(*arguments)
        self.end()
        return self.seconds()


def every_gpu() -> list[Gpu]:
    """All CUDA devices, in PCI order. Raises Unreadable."""
    cuda = Cuda()
    cuda.call("cuInit", ctypes.c_uint(0))
    return [Gpu(cuda, ordinal) for ordinal in range(cuda.integer("cuDeviceGetCount"))]


def figure(size: int, seconds: Sequence[float]) -> Json:
    """A bandwidth in GB/s (10^9 bytes): the median, the extremes, over how many runs of how many bytes. Pure."""
    rates = [size / taken / 1e9 for taken in seconds if taken > 0]
    if not rates or len(rates) != len(seconds):
        return {"unknown": "the clock did not move"}
    return {
        "gbps": round(statistics.median(rates), 2),
        "lowest_gbps": round(min(rates), 2),
        "highest_gbps": round(max(rates), 2),
        "bytes": size,
        "repeats": len(rates),
    }


def attempt(do: Callable[..., Json], *arguments: Any) -> Json:
    """What it returns, or why it could not be found out."""
    return fact(partial(do, *arguments))
