"""Loads the shared library and calls its plain C functions."""

import ctypes
import os
from functools import cache
from pathlib import Path

from .errors import LaunchError, UnsupportedDevice

NAME = "libb300kit_kernels.so"
CAPABILITIES = {90: "sm_90a", 103: "sm_103a"}
_P, _I, _L, _U, _F = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64, ctypes.c_uint64, ctypes.c_float

# The C signatures of common/api.h, in its order.
_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "b300k_error_text": (ctypes.c_char_p, [_I]),
    "b300k_device": (_I, [ctypes.POINTER(_I), ctypes.POINTER(_I)]),
    "b300k_boundary": (_I, [_P] * 10 + [_I, _F, _I, _I, _I, _I, _P]),
    "b300k_stats": (_I, [_P] * 8 + [_I, _F, _F, _I, _I, _I, _P]),
    "b300k_stats_workspace": (_L, [_I]),
    "b300k_gate": (_I, [_P] * 9 + [_I, _F, _I, _I, _P]),
    "b300k_gate_workspace": (_L, [_I]),
    "b300k_gemv": (_I, [_P] * 4 + [_I, _I, _I, _I, _I, _P]),
    "b300k_qkvproj": (_I, [_P] * 13 + [_L, _I, _F, _I, _I, _I, _L, _L, _I, _I, _I, _P]),
    "b300k_qkvproj_workspace": (_L, [_I]),
    "b300k_oproj": (_I, [_P] * 8 + [_I, _I, _I, _L, _I, _I, _I, _P]),
    "b300k_head": (_I, [_P] * 7 + [_I, _I, _I, _I, _P]),
    "b300k_head_workspace": (_L, [_I]),
    "b300k_agree": (_I, [_P] * 7 + [_I, _I, _I, _P]),
    "b300k_draw": (_I, [_P] * 8 + [_I, _I, _U, _U, _I, _P]),
    "b300k_qkv": (_I, [_P] * 10 + [_L, _I, _F, _I, _I, _I, _L, _L, _I, _I, _I, _P]),
}


def candidates() -> list[Path]:
    """Where the library may lie, best first: the environment's word, the wheel, the working tree's build."""
    here = Path(__file__).resolve().parents[1]
    places = [here / "lib" / NAME, here.parent / ".cache" / "kernels" / NAME]
    named = os.environ.get("B300KIT_KERNELS_LIB")
    return [Path(named)] if named else places


def available() -> bool:
    """True when a built library exists."""
    return any(path.is_file() for path in candidates())


@cache
def library() -> ctypes.CDLL:
    """The loaded library, signatures set. Raises UnsupportedDevice when there is none or it cannot be loaded."""
    for path in candidates():
        if path.is_file():
            try:
                loaded = ctypes.CDLL(str(path))
            except OSError as error:
                raise UnsupportedDevice(f"{path}: cannot be loaded: {error}") from error
            for name, (result, arguments) in _SIGNATURES.items():
                function = getattr(loaded, name)
                function.restype, function.argtypes = result, arguments
            return loaded
    listed = ", ".join(str(path) for path in candidates())
    raise UnsupportedDevice(f"no kernel library: expected one of {listed}; build it with `invoke kernels.build`")


@cache
def device_properties(index: int) -> tuple[int, int]:
    """(capability as 10*major+minor, SM count) of GPU ``index``; raises UnsupportedDevice when the kernels cannot run there."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    capability = 10 * properties.major + properties.minor
    if capability not in CAPABILITIES:
        wanted = ", ".join(f"{c // 10}.{c % 10} ({name})" for c, name in CAPABILITIES.items())
        raise UnsupportedDevice(
            f"GPU {index} ({properties.name}): compute capability {properties.major}.{properties.minor}; "
            f"the kernels are built for {wanted}"
        )
    return capability, properties.multi_processor_count


def check(op: str, code: int) -> None:
    """Raises LaunchError with the library's text unless ``code`` is 0."""
    if code != 0:
        raise LaunchError(f"{op}: the library returned {code}: {library().b300k_error_text(code).decode()}")
