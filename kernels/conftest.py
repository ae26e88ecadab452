"""Tests of the operators: they need torch and numpy; without them nothing here is collected, and that is said."""

import importlib.util
import os

import pytest

_MISSING = [name for name in ("torch", "numpy", "hypothesis") if importlib.util.find_spec(name) is None]
collect_ignore_glob = ["*/test_*.py"] if _MISSING else []


def pytest_report_header() -> str:
    """What runs."""
    if _MISSING:
        return (
            f"kernels: NOT collected, missing {', '.join(_MISSING)} (pip install --require-hashes -r kernels/requirements.lock)"
        )
    return "kernels: CPU references collected; GPU tests run where a GPU and the library are"


@pytest.fixture
def gpu():
    """The CUDA device; skips without one, unless B300KIT_REQUIRE_GPU=1: then its absence is a failure."""
    import torch

    from .common.library import available

    reason = "" if torch.cuda.is_available() else "no CUDA device"
    reason = reason or ("" if available() else "no kernel library; run kernels.build")
    if reason:
        if os.environ.get("B300KIT_REQUIRE_GPU") == "1":
            pytest.fail(f"B300KIT_REQUIRE_GPU=1 but {reason}")
        pytest.skip(reason)
    torch.cuda.set_device(0)
    return torch.device("cuda", 0)
