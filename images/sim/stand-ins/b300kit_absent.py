"""Packages that are there to be imported and raise as soon as something of them is used.

SGLang imports ``sgl_kernel`` (CUDA only) and ``torchvision`` (on PyPI for x86 a CUDA build) on its way to a CPU engine,
and uses neither for a text model. Nothing here computes anything, so nothing can be answered wrongly.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any, NoReturn


class _Absent(type):
    """Attributes of what is absent (the members of an enumeration) are absent too."""

    def __getattr__(cls, name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        found = _absent_class(f"{cls.__module__}.{cls.__name__}.{name}")
        setattr(cls, name, found)
        return found


def _absent_class(name: str) -> type:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(f"{name} is not in a simulated image: there is no GPU behind it")

    # A class, so that it can be a base class, an annotation and an isinstance() argument.
    return _Absent(name.rpartition(".")[2], (), {"__init__": refuse, "__module__": name.rpartition(".")[0]})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule of the stood-in packages."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if not fullname.startswith(f"{self.package}."):
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: ModuleType) -> None:
        fill(module)


def fill(module: ModuleType) -> None:
    """Give a module an attribute of every name; each raises when called."""
    known: dict[str, type] = {}

    def get(name: str) -> type:
        if name.startswith("__"):
            raise AttributeError(name)
        return known.setdefault(name, _absent_class(f"{module.__name__}.{name}"))

    module.__getattr__ = get  # type: ignore[method-assign]


def stand_in(package: str) -> None:
    """Called by the package's own ``__init__``."""
    sys.meta_path.append(_Finder(package))
    fill(sys.modules[package])
