"""May a node join, do the routers agree, and who goes next."""

from __future__ import annotations

from typing import Any

import pytest

from kit.errors import Failure
from kit.gates.identity import GATE_VERSION, Identity, Pass
from kit.router.decide import Asked, disagreements, may_join, waves
from kit.router.model import Membership, State, Worker, worker

NOW = Identity(
    host="node-1",
    profile="p",
    model="m",
    image_id="i",
    plan_digest="d",
    argv_sha256="a",
    weights_sha256="w",
    boot_id="b",
    invocation_id="v",
)
GIVEN = Pass(gate_version=GATE_VERSION, identity=NOW, gates=("greedy",), run="r", at=1.0)
URL = "http://10.0.0.1:30000"


def asked(**changes: Any) -> Asked:
    base: dict[str, Any] = {
        "now": NOW,
        "given": GIVEN,
        "membership": None,
        "models": ("m",),
        "healthy": True,
        "other_models": ("m",),
    }
    return Asked(**{**base, **changes})


QUARANTINED = Membership(state=State.QUARANTINED, since="x", by="y", run="r", quarantine_id="q-1", reason="Xid 13")


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"given": None}, "pass.none"),
        ({"now": NOW.model_copy(update={"invocation_id": "restarted"})}, "pass.invocation_id"),
        ({"membership": QUARANTINED}, "join.quarantined"),
        ({"models": ("other",)}, "join.models"),
        ({"models": ()}, "join.models"),
        ({"models": None}, "join.models"),
        ({"healthy": False}, "join.health"),
        ({"other_models": ("m", "unknown")}, "join.mixed"),
    ],
)
def test_each_reason_not_to_join(changes: dict[str, Any], code: str) -> None:
    assert may_join(asked(), ("greedy",)) == ()
    assert [f.code for f in may_join(asked(**changes), ("greedy",))] == [code]


def test_every_reason_at_once() -> None:
    found = may_join(asked(given=None, models=None, healthy=False, membership=QUARANTINED), ("greedy",))
    assert {f.code for f in found} == {"pass.none", "join.models", "join.health", "join.quarantined"}


def test_an_operators_word_ends_a_quarantine_and_replaces_no_pass() -> None:
    assert may_join(asked(membership=QUARANTINED), ("greedy",), override=True) == ()
    assert [f.code for f in may_join(asked(membership=QUARANTINED, given=None), ("greedy",), override=True)] == ["pass.none"]


def one(**changes: Any) -> Worker:
    return Worker(**{"id": "1", "url": URL, "healthy": True, "model": "m", "load": 0, **changes})


@pytest.mark.parametrize(
    ("workers", "code"),
    [
        (None, "router.unreachable"),
        ((), "router.missing"),
        ((one(model="unknown"),), "router.model"),
        ((one(model=None),), "router.model"),
        ((one(healthy=False),), "router.unhealthy"),
        ((one(), one(url="http://10.0.0.9:30000")), "router.ungated"),
    ],
)
def test_every_router_holds_the_same(workers: tuple[Worker, ...] | None, code: str) -> None:
    assert disagreements({"a": (one(),), "b": (one(),)}, {URL: "m"}) == ()
    found = disagreements({"a": (one(),), "b": workers}, {URL: "m"})
    assert [f.code for f in found] == [code]
    assert found[0].where.startswith("b")


def test_a_worker_as_the_router_lists_it() -> None:
    listed = {"id": "x", "url": f"{URL}/", "is_healthy": True, "model_id": "m", "load": 3}
    assert worker(listed) == one(id="x", load=3)
    pending = worker({"id": "x", "url": URL, "is_healthy": False, "job_status": {"status": "processing"}})
    assert (pending.healthy, pending.model, pending.status) == (False, None, "processing")


@pytest.mark.parametrize(
    ("hosts", "serving", "minimum", "sizes"),
    [
        (8, 8, 1, (1, 2, 5)),
        (8, 8, 6, (1, 2, 2, 2, 1)),
        (8, 8, 7, (1, 1, 1, 1, 1, 1, 1, 1)),
        (2, 2, 1, (1, 1)),
        (1, 2, 1, (1,)),
    ],
)
def test_one_then_a_quarter_then_the_rest_within_the_minimum(
    hosts: int, serving: int, minimum: int, sizes: tuple[int, ...]
) -> None:
    names = [f"n{i}" for i in range(hosts)]
    made = waves(names, serving, minimum)
    assert not isinstance(made, Failure)
    assert tuple(map(len, made)) == sizes
    assert [name for wave in made for name in wave] == names


def test_never_below_the_minimum() -> None:
    found = waves(["n1"], 1, 1)
    assert isinstance(found, Failure)
    assert found.code == "rollout.minimum"
