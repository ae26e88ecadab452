"""Threshold files: ``fleet/gates/NAME.yml``, one a gate, with what a profile sets otherwise. Edge: reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, Field, JsonValue, ValidationError

from kit.errors import ExitCode, KitError, failure
from kit.gates.declare import Frozen
from kit.gates.judges import (
    arithmetic,
    cache,
    configuration,
    cores,
    greedy,
    hardware,
    image,
    kl,
    needle,
    plugin,
    speculation,
    speed,
    thinking,
    tools,
)
from kit.gates.names import GATES, GateName
from kit.spec.load import load_document, shown
from kit.spec.model import Name

L = TypeVar("L", bound=BaseModel)
LIMITS: Mapping[GateName, type[BaseModel]] = {
    "hardware": hardware.Limits,
    "image": image.Limits,
    "configuration": configuration.Limits,
    "plugin": plugin.Limits,
    "graphs": plugin.Limits,
    "fast_cores": cores.Limits,
    "greedy": greedy.GreedyLimits,
    "agreement": greedy.AgreementLimits,
    "kl": kl.Limits,
    "tools": tools.Limits,
    "thinking": thinking.Limits,
    "arithmetic": arithmetic.Limits,
    "cache_restore": cache.Limits,
    "needle": needle.Limits,
    "speculation": speculation.Limits,
    "speed": speed.Limits,
}


class ThresholdFile(Frozen):
    """One gate's file. ``limits`` hold for every profile but where ``profiles`` says otherwise, key by key."""

    schema_version: int = Field(ge=1, le=1)
    limits: Mapping[str, JsonValue] = Field(default_factory=dict)
    profiles: Mapping[Name, Mapping[str, JsonValue]] = Field(default_factory=dict)


def load_limits(profile: str, directories: Sequence[Path]) -> dict[GateName, BaseModel]:
    """The limits of every gate for one profile. Raises KitError(USAGE) with all that is wrong with the files."""
    out: dict[GateName, BaseModel] = {}
    failures = []
    for gate in GATES:
        values: dict[str, Any] = {}
        for directory in directories:
            path = directory / "gates" / f"{gate}.yml"
            if path.is_file():
                try:
                    file = load_document(directory, path, ThresholdFile)
                except KitError as error:
                    failures += error.failures
                    break
                values = {**file.limits, **file.profiles.get(profile, {})}
                break
        try:
            out[gate] = LIMITS[gate].model_validate(values)
        except ValidationError as error:
            for one in error.errors(include_url=False):
                place = f"{shown(path)} {'.'.join(map(str, one['loc']))}"
                failures.append(failure("gate.limits", place, one["msg"], one.get("input", ""), "correct the threshold file"))
    if failures:
        raise KitError(failures, ExitCode.USAGE)
    return out
