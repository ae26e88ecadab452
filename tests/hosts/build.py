"""Golden hosts. ``tests/hosts/<case>/facts.json`` holds what differs from a healthy, freshly delivered 4xB300 host.

Four keys are expanded here; everything else is merged over ``healthy.json`` (objects merge, lists and ``{"unknown": ...}``
replace):

- ``cpus``: a short description of all logical CPUs (see :func:`expand`), for ``cpu.logical``;
- ``each_gpu``: facts that hold for every GPU;
- ``measured``: fast and slow MHz, for ``cpu.measured`` of all cores;
- ``blind``: a reason; every fact that may be unknown is, for this reason.

For other tests: ``facts()`` is the healthy host, ``facts({"gpu.gpus.0.sms": 152})`` the same with one fact changed,
``facts(memory={"thp": "never"})`` with some merged, ``case("flat-no-pct")`` a golden one.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel

from kit.facts.model import Facts, parse
from kit.facts.unknown import Unknown

HERE = Path(__file__).resolve().parent


def cases() -> list[str]:
    """Names of all golden hosts."""
    return sorted(path.parent.name for path in HERE.glob("*/facts.json"))


def case(name: str, changes: Mapping[str, Any] | None = None, **overrides: Any) -> Facts:
    """A golden host, changed as :func:`facts` does."""
    return parse(document(json.loads((HERE / name / "facts.json").read_text()), changes, overrides))


def facts(changes: Mapping[str, Any] | None = None, **overrides: Any) -> Facts:
    """The healthy host. ``changes``: dotted path -> value. ``overrides``: top-level key -> value, merged."""
    return parse(document({}, changes, overrides))


def document(differs: Mapping[str, Any], changes: Mapping[str, Any] | None, overrides: Mapping[str, Any]) -> dict[str, Any]:
    """The probe's JSON for such a host."""
    whole: dict[str, Any] = json.loads((HERE / "healthy.json").read_text())
    whole = merged(whole, {key: value for key, value in differs.items() if key not in ("each_gpu", "measured", "blind")})
    cpus = whole.pop("cpus")
    whole["cpu"] = merged(expand(cpus), whole["cpu"])
    if "measured" in differs:
        whole["cpu"]["measured"] = measured(cpus, differs["measured"], whole["host"]["boot_id"])
    for gpu in whole["gpu"].get("gpus", ()) if isinstance(whole["gpu"].get("gpus"), list) else ():
        gpu.update(differs.get("each_gpu", {}))
    if "blind" in differs:
        whole = blinded(whole, Facts, {"unknown": differs["blind"]})
    whole = merged(whole, overrides)
    for path, value in (changes or {}).items():
        place: Any = whole
        *way, last = path.split(".")
        for step in way:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[int(last) if isinstance(place, list) else last] = value
    return whole


def blinded(values: Any, kind: Any, reason: dict[str, str]) -> Any:
    """The same document with every fact unknown that the model ``kind`` lets be unknown."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return {name: blinded(value, kind.model_fields[name].annotation, reason) for name, value in values.items()}
    inner = get_args(get_args(kind)[0] if get_origin(kind) is Annotated else kind)
    if Unknown in inner:
        return reason
    if isinstance(values, dict) and inner:
        return {name: blinded(value, inner[1], reason) for name, value in values.items()}
    if isinstance(values, list) and inner:
        return [blinded(value, inner[0], reason) for value in values]
    return values


def merged(under: Any, over: Any) -> Any:
    """``over`` laid on ``under``."""
    if not isinstance(under, dict) or not isinstance(over, Mapping) or set(over) == {"unknown"} or set(under) == {"unknown"}:
        return copy.deepcopy(over)
    return {**under, **{key: merged(under.get(key), value) for key, value in over.items()}}


def expand(cpus: Mapping[str, Any]) -> dict[str, Any]:
    """``cpu`` facts from: packages, cores_per_package, threads, fast (positions of fast cores for each package), max_khz
    (``[slow, fast]``, or ``{"unknown"}``), highest_perf (``[slow, fast]``), prefcore (a list that repeats over the cores),
    base_khz, governor, driver, usable (how many CPUs exist here; null: all).

    CPUs are numbered as Linux does on such a host: first threads of all packages, then second threads. One node a package.
    """
    cores = cpus["packages"] * cpus["cores_per_package"]
    threads = cpus["threads"]
    missing = {"unknown": "no such file"}

    def pick(name: str, core: int) -> Any:
        values = cpus[name]
        package, position = divmod(core, cpus["cores_per_package"])
        if isinstance(values, list):
            return values[position in cpus["fast"][package]] if len(values) == 2 else values[core % len(values)]
        return missing if values is None else values

    logical = []
    for cpu in range(cores * threads):
        core = cpu % cores
        logical.append(
            {
                "cpu": cpu,
                "core": core % cpus["cores_per_package"],
                "package": core // cpus["cores_per_package"],
                "node": core // cpus["cores_per_package"],
                "siblings": [core + cores * thread for thread in range(threads)],
                "online": True,
                "isolated": False,
                "usable": cpus["usable"] is None or cpu < cpus["usable"],
                "base_khz": pick("base_khz", core),
                "max_khz": pick("max_khz", core),
                "scaling_max_khz": pick("max_khz", core),
                "current_khz": 800000,
                "governor": cpus["governor"],
                "driver": cpus["driver"],
                "highest_perf": pick("highest_perf", core),
                "prefcore_ranking": pick("prefcore", core),
                "cstate_latency_us": 210,
            }
        )
    return {
        "model": cpus["model"],
        "packages": cpus["packages"],
        "physical_cores": cores,
        "smt": threads > 1,
        "nodes": list(range(cpus["packages"])),
        "logical": logical,
        "irq_cpus": list(range(cores * threads)),
        "default_irq_cpus": list(range(cores * threads)),
    }


def measured(cpus: Mapping[str, Any], speeds: Mapping[str, Any], boot_id: str) -> dict[str, Any]:
    """Measured speeds: ``{"unit", "alone": [slow, fast], "loaded": [slow, fast], "fast": positions for each package}``.

    Every core differs a little from its class, as real ones do.
    """
    found = []
    for core in range(cpus["packages"] * cpus["cores_per_package"]):
        package, position = divmod(core, cpus["cores_per_package"])
        fast = position in speeds["fast"][package]
        wobble = 1 + (core * 7 % 5 - 2) / 1000
        found.append(
            {
                "core_cpu": core,
                "alone_mhz": round(speeds["alone"][fast] * wobble, 1),
                "loaded_mhz": round(speeds["loaded"][fast] * wobble, 1),
            }
        )
    return {"boot_id": boot_id, "unit": speeds["unit"], "cores": found}
