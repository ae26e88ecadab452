"""The lock taken from an accepted host."""

from __future__ import annotations

from kit.facts.model import parse
from kit.plan.make import make_plan
from kit.spec import strict_yaml
from kit.spec.model import Lock
from kit.spec.relock import Move, apply, moves, unaccepted
from tests.hosts.build import facts
from tests.unit.plan import world

LOCK = """# Versions.
schema_version: 1
driver: null # the driver
fabric_manager: "1.0"
packages:
  docker.io: null # held
  other: null
"""
PACKAGE = {"version": "1.10", "held": True, "candidate": {"unknown": "x"}}


def lock() -> Lock:
    return Lock.model_validate(strict_yaml.read(LOCK).value)


def test_known_versions_move_and_unknown_ones_stay() -> None:
    seen = facts(
        {"gpu.driver_version": "580.1", "gpu.fabric_manager_version": "1.0"},
        packages={"docker.io": PACKAGE, "other": {"unknown": "not installed"}},
    )
    found, untold = moves(lock(), seen, ("docker.io", "other"))
    assert found == [Move("driver", None, "580.1"), Move("packages.docker.io", None, "1.10")]
    assert [text.split()[0] for text in untold] == ["packages.other"]


def test_without_a_gpu_stack_nothing_is_said_about_drivers() -> None:
    seen = facts({"gpu": {"unknown": "no driver"}})
    found, untold = moves(lock(), seen, ())
    assert found == []
    assert [text.split()[0] for text in untold] == ["driver", "fabric_manager"]
    assert moves(lock(), seen, (), fabric_manager=False)[1] == untold[:1]


def test_comments_stay_and_versions_stay_text() -> None:
    text = apply(
        LOCK, [Move("driver", None, "580.10"), Move("packages.docker.io", None, "1.10"), Move("packages.new", None, "2")]
    )
    assert "# Versions." in text
    assert "# the driver" in text
    assert "# held" in text
    read = strict_yaml.read(text)
    assert read.problems == []
    assert read.value == {
        "schema_version": 1,
        "driver": "580.10",
        "fabric_manager": "1.0",
        "packages": {"docker.io": "1.10", "other": None, "new": "2"},
    }
    Lock.model_validate(read.value, strict=True)
    assert "  other: null\n" in text


def test_only_an_accepted_host_gives_its_versions() -> None:
    """What the lock itself refuses is what it would settle; anything else says that this is not the host to copy from."""
    spec, old = world.declared(), world.LOCK.model_copy(update={"driver": "570.1", "fabric_manager": None})
    seen = world.provisioned(spec)
    assert make_plan(spec, old, seen).refused
    changes, _ = moves(old, seen, spec.packages.hold)
    assert {"driver", "fabric_manager"} <= {change.key for change in changes}
    assert unaccepted(spec, old, seen, changes) == []
    document = world.provisioned_document(spec)
    world.put(document, "gpu.gpus.1.ecc_current", False)
    [refused] = unaccepted(spec, old, parse(document), changes)
    assert (refused.code, bool(refused.next)) == ("plan.gpu.ecc", True)


def test_packages_may_be_absent() -> None:
    assert strict_yaml.read(apply("schema_version: 1\n", [Move("packages.a", None, "1")])).value["packages"] == {"a": "1"}
