"""Imports a patched plugin, asks SGLang's own ``find_spec`` and prints what it finds. Run as a program of its own.

Standard library only: it runs in the interpreter that will serve, which need not have this kit. Reads one JSON request on
standard input, prints one JSON answer; whatever the plugin prints goes to standard error.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

_MISSING = re.compile(r"does not import: (?:ModuleNotFoundError: No module named|ImportError: cannot import name) '([^']+)'")
"""``find_spec`` turns an import that fails into a reason; here it matters why."""


class _Anything:
    """Stands in for what a module that is absent here would have held."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return _Anything()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return _Anything()

    def __getitem__(self, key: Any) -> Any:
        return _Anything()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return (object,)

    def __or__(self, other: Any) -> Any:
        return _Anything()

    __ror__ = __or__


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last: only for modules that nothing else finds, and only when the plugin's own code imports them."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.names: list[str] = []

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Other packages try imports that may fail (``winreg``, ``org.python``): those go on failing."""
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename.startswith("<frozen importlib"):
            frame = frame.f_back
        if frame is None or not frame.f_code.co_filename.startswith(self.folder):
            return None
        self.names.append(name)
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """An empty module; ``exec_module`` fills it."""
        return types.ModuleType(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Any plain attribute exists."""
        module.__dict__["__getattr__"] = lambda name: _refuse(name) if name.startswith("__") else _Anything()


def _refuse(name: str) -> NoReturn:
    raise AttributeError(name)


def _load(target: str) -> Any:
    module, _, attribute = target.partition(":")
    found = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def _field(spec: Any, dotted: str) -> Any:
    for part in dotted.split("."):
        spec = getattr(spec, part)
    return spec


def _check(contract: Any, check: dict[str, Any]) -> tuple[bool, str]:
    spec, why = contract.find_spec(architectures=[check["architecture"]], isa=check["isa"])
    if spec is None:
        missing = _MISSING.search(why)
        if missing:
            raise ModuleNotFoundError(why, name=missing[1])
        return False, why
    value = _field(spec, check["field"])
    if check["contains"] is not None:
        names = sorted(getattr(member, "name", str(member)) for member in value)
        return check["contains"] in names, "holds " + ", ".join(names)
    same = type(value) in (int,) or (isinstance(value, int) and not isinstance(value, bool))
    return bool(same and value == check["equals"]), "is " + repr(value)


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """The answer document for a request."""
    sys.path[:0] = request["paths"]
    stand_ins = _StandIns(request["paths"][0]) if request["stand_in"] else None
    contract = importlib.import_module(request["contract"])
    if stand_ins is not None:
        sys.meta_path.append(stand_ins)
    try:
        if request["entry"]:
            _load(request["entry"])()
        else:
            for architecture, path in request["register"]:
                contract.register(architecture=architecture, path=path)
        checks = [_check(contract, check) for check in request["checks"]]
    except BaseException as error:  # noqa: BLE001 - whatever a plugin raises, SystemExit too, is the finding
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        return {"error": type(error).__name__ + ": " + str(error), "absent": absent, "stood_in": _stood_in(stand_ins)}
    return {"checks": checks, "stood_in": _stood_in(stand_ins)}


def _stood_in(stand_ins: _StandIns | None) -> list[str]:
    names = stand_ins.names if stand_ins is not None else []
    return sorted({name if name.startswith("sglang.") else name.split(".")[0] for name in names})


def main() -> None:
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.load(sys.stdin)
    json.dump(answer(request), out)
    out.close()


if __name__ == "__main__":
    main()
