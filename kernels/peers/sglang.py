"""Loads SGLang's own Triton kernels from an unpacked wheel, without the rest of SGLang, to time them beside ours.

Only the named modules are real; every other ``sglang`` module is an empty stand-in, enough for their import lines. Where the
folder is absent the peers are absent, and the bench says so.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

ROOT = Path(os.environ.get("B300KIT_PEERS", Path(__file__).resolve().parents[2] / ".peers"))
VERSION = "0.5.23"
REAL = (
    "sglang.kernels.ops.layernorm.hc_combine_norm",
    "sglang.kernels.ops.layernorm.mhc_post_split_h",
    "sglang.kernels.ops.layernorm.mhc",
    "sglang.kernels.ops.layernorm.rmsnorm_mxfp8",
    "sglang.kernels.ops.moe.moe_fused_gate",
    "sglang.kernels.ops.gemm.dsv4_wo_a",
    "sglang.kernels.ops.quantization.mxfp8_epilogue",
)


class _Anything:
    """Stands in for a name that the kernels under test never use at run time."""

    def __getattr__(self, name: str) -> _Anything:
        return _Anything()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return False


class _StandIn(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return {
            "debug_kernel_api": lambda function: function,
            "is_arch_support_pdl": lambda: True,  # sm_90 and later
            "get_jit_cuda_arch": lambda: SimpleNamespace(major=9, minor=0),
        }.get(name, _Anything())


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name.split(".")[0] != "sglang":
            return None
        if name in REAL:
            return importlib.util.spec_from_file_location(name, ROOT / (name.replace(".", "/") + ".py"))
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        module.__path__ = []


def triton_module(name: str) -> ModuleType | None:
    """A real module of ``REAL`` by its last name, or None when the wheel is not unpacked here."""
    full = next(real for real in REAL if real.endswith("." + name))
    if not (ROOT / (full.replace(".", "/") + ".py")).is_file():
        return None
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        if "sglang" in sys.modules:
            raise RuntimeError("the real sglang is imported already: time the peers in a process of their own")
        sys.meta_path.insert(0, _Finder())
    return importlib.import_module(full)


def cuda_library() -> ctypes.CDLL | None:
    """SGLang's JIT CUDA kernels as built by peers/sglang_cuda.cu, or None."""
    path = ROOT / "libpeers.so"
    if not path.is_file():
        return None
    library = ctypes.CDLL(str(path))
    pointer, number, real = ctypes.c_void_p, ctypes.c_int, ctypes.c_float
    library.peer_gate_gemm.argtypes = [pointer, pointer, pointer, number, pointer]
    library.peer_q_norm.argtypes = [pointer, pointer, pointer, number, real, pointer]
    library.peer_gemv.argtypes = [pointer, pointer, pointer, number, number, pointer]
    library.peer_turn_back.argtypes = [pointer, pointer, pointer, number, number, pointer]
    library.peer_kv.argtypes = [pointer] * 6 + [number, real, number, pointer]
    return library
