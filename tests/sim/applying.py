"""Look at a simulated host, apply its plan: the stages that the tests here are about, without the command line.

``python -m tests.sim.applying NAME RUN_DIR`` applies once and prints each event, for tests that end the process.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kit import paths
from kit.apply import ansible
from kit.apply.result import ApplyEvent, ApplyResult
from kit.apply.ssh import Remote
from kit.facts.collect import collect
from kit.facts.model import Facts
from kit.plan.make import make_plan
from kit.plan.model import Action, Plan
from kit.plan.wanted import wanted
from kit.spec.load import load_fleets
from kit.spec.select import select
from kit.spec.target import Target


def target(name: str) -> Target:
    """The host's declaration, as the simulator wrote it."""
    return select(load_fleets([paths.cache_dir() / "fleet"]), name)[0]


def look(name: str) -> tuple[Target, Facts, Plan]:
    """Probe and plan."""
    it = target(name)
    facts, _ = collect(it, wanted(it.spec), Remote(it.spec.connection, it.name))
    return it, facts, make_plan(it.spec, it.lock, facts)


def pending(name: str) -> dict[str, str]:
    """Steps of a new plan that are not kept: id -> action and reason."""
    return {s.id: f"{s.action}: {s.reason}" for s in look(name)[2].steps if s.action is not Action.KEEP}


def apply(name: str, run_dir: Path, events: list[ApplyEvent] | None = None) -> ApplyResult:
    """Plan and apply once."""
    it, _, plan = look(name)
    assert not plan.refused, [s.reason for s in plan.of(Action.REFUSE)]
    return ansible.apply({it: plan}, run_dir, (events if events is not None else []).append, 1)[name]


if __name__ == "__main__":

    def tell(event: ApplyEvent) -> None:
        sys.stdout.write(event.line() + "\n")
        sys.stdout.flush()

    one, _, planned = look(sys.argv[1])
    result = ansible.apply({one: planned}, Path(sys.argv[2]), tell, 1)[sys.argv[1]]
    sys.stdout.write(result.model_dump_json(exclude={"events"}) + "\n")
    sys.exit(result.exit_code)
