"""Routers as declared, and workers as a router lists them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints

from kit.gates.declare import Frozen
from kit.gates.identity import Pass
from kit.spec.model import KeyFile, Name

Url = Annotated[str, StringConstraints(pattern=r"^https?://(\[[0-9a-fA-F:]+\]|[A-Za-z0-9.-]+):[0-9]{1,5}$")]


class Health(Frozen):
    """How a router finds out that a worker is dead. A frozen one is out after about interval x failures + timeout.

    The engine's own /health asks for a token and sleeps a second first: a timeout below 5 s drops healthy workers under load.
    So the router asks something that answers at once from the scheduler, and is given a short timeout.
    """

    endpoint: Annotated[str, StringConstraints(pattern=r"^/[a-z0-9_/]{1,60}$")] = "/server_info"
    interval_s: Annotated[int, Field(ge=1, le=60)] = 1
    timeout_s: Annotated[int, Field(ge=1, le=60)] = 1
    failures: Annotated[int, Field(ge=1, le=20)] = 3
    successes: Annotated[int, Field(ge=1, le=20)] = 1


class Router(Frozen):
    """One router. Its key lies in a file on the control machine, never here."""

    name: Name
    url: Url
    key_file: KeyFile | None = None


class RouterFile(Frozen):
    """``fleet/routers.yml``: every router must hold the same members."""

    schema_version: Literal[1]
    routers: tuple[Router, ...]
    engine_key_file: KeyFile | None = Field(None, description="The engines' API key, on the control machine.")
    minimum_serving: Annotated[int, Field(ge=0, le=1000)] = Field(1, description="A rollout never leaves fewer nodes serving.")
    health: Health = Health()
    watch_s: Annotated[float, Field(ge=0, le=3600)] = Field(20, description="How long a node is watched after it joined.")
    drain_s: Annotated[float, Field(ge=1, le=7200)] = Field(
        600, description="How long streams may take to end when a node leaves."
    )


class Worker(Frozen):
    """One worker of a router, as the router lists it."""

    id: str
    url: str
    healthy: bool
    model: str | None
    load: int | None
    status: str | None = None
    """Of its admission, while that is pending or failed."""


class State(StrEnum):
    """Of a node, as this kit keeps it on the host."""

    JOINED = "joined"
    LEFT = "left"
    QUARANTINED = "quarantined"


class Membership(Frozen):
    """The marker on a host: what `join` and `leave` left. A host that says `joined` is not disturbed."""

    schema_version: int = 1
    state: State
    since: str
    """UTC."""
    by: str
    run: str
    given: Pass | None = Field(None, description="The pass it joined with.")
    quarantine_id: str | None = None
    reason: str = ""
    """In words, for a quarantine or an operator's leave."""


def worker(document: Mapping[str, Any]) -> Worker:
    """One entry of ``GET /workers`` (sglang-router 0.3.2). Raises KeyError when it has no id or URL."""
    models = document.get("models")
    model = document.get("model_id") or (models[0].get("id") if isinstance(models, list) and models else None)
    job = document.get("job_status")
    return Worker(
        id=str(document["id"]),
        url=str(document["url"]).rstrip("/"),
        healthy=document.get("is_healthy") is True,
        model=str(model) if model else None,
        load=document.get("load") if isinstance(document.get("load"), int) else None,
        status=str(job.get("status")) if isinstance(job, Mapping) else None,
    )
