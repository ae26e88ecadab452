"""What a node needs: only a joined one comes back by itself, and only through its gates."""

from __future__ import annotations

import pytest

from kit.gates.identity import GATE_VERSION, Identity, Pass
from kit.router.model import Membership, State
from kit.router.reconcile import Need, need

NOW = Identity(
    host="n",
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


def marker(state: State, given: Pass | None = GIVEN) -> Membership:
    return Membership(state=state, since="t", by="x", run="r", given=given)


@pytest.mark.parametrize("moved", ["boot_id", "invocation_id", "image_id", "argv_sha256", "weights_sha256", "plan_digest"])
def test_a_joined_node_that_runs_something_else_is_gated(moved: str) -> None:
    assert need(marker(State.JOINED), NOW, ("greedy",)) is Need.NOTHING
    assert need(marker(State.JOINED), NOW.model_copy(update={moved: "other"}), ("greedy",)) is Need.GATE
    assert need(marker(State.JOINED), NOW.model_copy(update={moved: None}), ("greedy",)) is Need.GATE


@pytest.mark.parametrize("held", [None, marker(State.LEFT), marker(State.QUARANTINED)])
def test_who_left_or_was_taken_out_stays_out(held: Membership | None) -> None:
    assert need(held, NOW.model_copy(update={"boot_id": "other"}), ("greedy",)) is Need.LEAVE_ALONE


def test_a_marker_without_a_pass_is_gated() -> None:
    assert need(marker(State.JOINED, None), NOW, ("greedy",)) is Need.GATE
