"""The command line: which commands there are, and under what names. They live in ``kit/tasks/``; nothing is decided here."""

from __future__ import annotations

from invoke.collection import Collection

from kit.cli.command import KitTask
from kit.tasks.hosts import doctor, drift, fleet_check, fleet_init, fleet_lock, fleet_schema, plan, probe, provision, verify
from kit.tasks.images import (
    build_image,
    image_bundle,
    image_lock,
    image_push,
    image_sign,
    image_verify,
    patch_check,
    weights_push,
    weights_verify,
)
from kit.tasks.kernels import kernels_bench, kernels_build, kernels_test
from kit.tasks.records import record_list, record_report, record_show, record_verify
from kit.tasks.serving import (
    engine_check,
    engine_show,
    join,
    leave,
    prompts_pin,
    quarantine,
    reconcile,
    reference_record,
    release,
    smoke,
    start,
    status,
    stop,
)
from kit.tasks.simulator import demo, sim_down, sim_status, sim_up


def _group(**tasks: KitTask) -> Collection:
    return Collection(**tasks)


namespace = Collection(
    start,
    stop,
    smoke,
    join,
    leave,
    status,
    reconcile,
    quarantine,
    release,
    doctor,
    probe,
    plan,
    provision,
    drift,
    verify,
    demo,
    patch_check,
    build_image,
)
namespace.add_collection(_group(init=fleet_init, check=fleet_check, lock=fleet_lock, schema=fleet_schema), "fleet")
namespace.add_collection(_group(check=engine_check, show=engine_show), "engine")
namespace.add_collection(
    _group(bundle=image_bundle, lock=image_lock, push=image_push, sign=image_sign, verify=image_verify), "image"
)
namespace.add_collection(_group(build=kernels_build, test=kernels_test, bench=kernels_bench), "kernels")
namespace.add_collection(_group(pin=prompts_pin), "prompts")
namespace.add_collection(_group(record=reference_record), "reference")
namespace.add_collection(_group(push=weights_push, verify=weights_verify), "weights")
namespace.add_collection(_group(up=sim_up, down=sim_down, status=sim_status), "sim")
namespace.add_collection(_group(list=record_list, show=record_show, report=record_report, verify=record_verify), "record")
