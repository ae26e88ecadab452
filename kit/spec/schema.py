"""JSON Schema of the four kinds of file, for editors (completion and checks while typing). Pure."""

from __future__ import annotations

import json

from pydantic import BaseModel

from kit.engine.model import EngineProfile
from kit.spec.model import FleetFile, HostSpec, Lock

_MODELS: dict[str, type[BaseModel]] = {"host": HostSpec, "fleet": FleetFile, "lock": Lock, "engine": EngineProfile}


def files() -> dict[str, str]:
    """File name -> text, byte for byte the same for the same models."""
    return {f"{name}.schema.json": _text(model) for name, model in _MODELS.items()}


def _text(model: type[BaseModel]) -> str:
    body = {"$schema": "https://json-schema.org/draft/2020-12/schema", **model.model_json_schema(by_alias=True)}
    return json.dumps(body, indent=2, sort_keys=True) + "\n"
