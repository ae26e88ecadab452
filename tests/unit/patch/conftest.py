"""Fixtures of the patch tests: SGLang's real plugin contract, and stand-in plugins written against it."""

import os
import sys
from pathlib import Path

import pytest

from kit.errors import KitError
from kit.patch.contract import contract_dir
from kit.patch.load import load_series
from kit.patch.post import Interpreter
from kit.paths import ROOT, cache_dir

sys.path.insert(0, str(ROOT / "tests" / "standins"))

B300 = ROOT / "patches" / "sgl-nvidia-mega" / "sglang-pin-2026-10-28"


@pytest.fixture(scope="session")
def series() -> Path:
    """The B300 series as shipped."""
    return B300


@pytest.fixture(scope="session")
def contract(series: Path) -> Path:
    """The contract files of the real SGLang wheel. A machine that cannot have them fails: these tests are worth nothing else."""
    try:
        found = contract_dir(load_series(series).declared.contract, cache_dir())
    except KitError as error:
        pytest.fail(str(error))
    if found is None:
        reason = "the SGLang wheel is neither in the cache nor to be downloaded"
        if os.environ.get("B300KIT_OFFLINE"):
            pytest.skip(reason)
        pytest.fail(reason)
    return found


@pytest.fixture(scope="session")
def interpreter(contract: Path) -> Interpreter:
    """This Python, with the real contract."""
    return Interpreter(contract=contract)
