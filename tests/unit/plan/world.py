"""A declared host, the facts of a fresh one, and the facts of one on which a plan was carried out.

``provisioned`` is what a faithful host would show afterwards: files as planned, and every setting in effect.
"""

from __future__ import annotations

import functools
import hashlib
import json
from typing import Any

from ruamel.yaml import YAML

from kit.facts.model import Facts, parse
from kit.plan import where
from kit.plan.areas import firewall
from kit.plan.make import make_plan
from kit.plan.model import Action, ManagedFile, Plan, Step
from kit.plan.wanted import wanted
from kit.spec.model import HostSpec, Lock
from tests.hosts import build

LOCK = Lock(schema_version=1, driver="580.95.05", fabric_manager="580.95.05", packages={"docker.io": "28.2.2-1"})
NO_FILE = {"exists": False, **{name: {"unknown": "no such file"} for name in ("sha256", "mode", "owner", "group", "content")}}
FSTAB = "UUID=1 / ext4 defaults 0 1\n/dev/sda2 none swap sw 0 0\n"


@functools.cache
def _document() -> str:
    with (build.HERE / "seed-b300" / "spec.yml").open() as stream:
        return json.dumps(YAML(typ="safe", pure=True).load(stream))


def declared(**changes: Any) -> HostSpec:
    """The seed's spec; ``changes``: dotted path with ``__`` -> value."""
    document = json.loads(_document())
    document["network"]["engine"]["ports"] = str(document["network"]["engine"]["ports"])
    document["network"]["metrics"]["ports"] = str(document["network"]["metrics"]["ports"])
    document["cpu"]["max_cstate_latency_us"] = 10
    for path, value in changes.items():
        *way, last = path.split("__")
        place = document
        for key in way:
            place = place[key]
        place[last] = value
    return HostSpec.model_validate(document)


def file(content: str, mode: str = "0644", owner: str = "root", group: str = "root") -> dict[str, Any]:
    """A file as the probe shows it."""
    digest = hashlib.sha256(content.encode()).hexdigest()
    return {"exists": True, "sha256": digest, "mode": mode, "owner": owner, "group": group, "content": content}


def fresh_document(spec: HostSpec) -> dict[str, Any]:
    """The probe's JSON for a freshly delivered host."""
    asked = wanted(spec)
    document = build.document({}, None, {})
    document["files"] = {path: dict(NO_FILE) for path in asked.files}
    document["files"][where.FSTAB] = file(FSTAB)
    document["files"][where.NVIDIA_CTK] = file("binary", "0755")
    absent = document["services"][where.CPU_UNIT]
    document["services"] = {name: document["services"].get(name, dict(absent)) for name in asked.services}
    return document


def fresh(spec: HostSpec) -> Facts:
    """Facts of a freshly delivered host."""
    return parse(fresh_document(spec))


def provisioned_document(spec: HostSpec) -> dict[str, Any]:
    """The probe's JSON for a host on which the plan for a fresh one was carried out."""
    document = fresh_document(spec)
    plan = make_plan(spec, LOCK, parse(document))
    assert not plan.refused, [s.reason for s in plan.of(Action.REFUSE)]
    for step in plan.of(Action.CHANGE):
        if step.file is not None:
            f: ManagedFile = step.file
            document["files"][f.path] = file(f.content, f.mode, f.owner, f.group)
    running = {"load": "loaded", "active": "active", "enabled": "enabled", "needs_daemon_reload": False, "result": "success"}
    for unit in where.OUR_UNITS:
        document["services"][unit] = {**running, "since_boot_s": 30.0}
    _memory(document, spec)
    _cpu(document, plan)
    _gpus(document, spec)
    _docker(document, spec)
    _firewall(document, spec)
    for name in spec.packages.hold:
        document["packages"][name]["held"] = True
    document["users"][spec.service_user] = f"999:999:{spec.service_user}:{spec.data_dir}:/usr/sbin/nologin"
    document["files"][spec.data_dir] = {
        **file("", "0750", spec.service_user, spec.service_user),
        "sha256": {"unknown": "not a regular file"},
    }
    return document


def provisioned(spec: HostSpec) -> Facts:
    """Facts of a host on which the plan was carried out."""
    return parse(provisioned_document(spec))


def _memory(document: dict[str, Any], spec: HostSpec) -> None:
    memory = document["memory"]
    memory |= {"swap_total_kib": 0, "swap_in_fstab": False, "thp": spec.memory.transparent_huge_pages}
    document["sysctls"]["vm.swappiness"] = str(spec.memory.swappiness)


def _cpu(document: dict[str, Any], plan: Plan) -> None:
    settings = json.loads(next(s.file.content for s in plan.steps if s.id == "cpu.config_file" and s.file))
    housekeeping = cpus(settings["interrupts"]["cpus"])
    document["cpu"]["irq_cpus"] = document["cpu"]["default_irq_cpus"] = housekeeping
    document["cpu"]["priority"] |= {"enabled": True, "priority_cpus": cpus(settings["priority"]["cpus"])}
    fast = set(cpus(settings["cstates"]["cpus"]))
    for cpu in document["cpu"]["logical"]:
        cpu["governor"] = settings["governor"]
        if cpu["cpu"] in fast:
            cpu["cstate_latency_us"] = 2


def _gpus(document: dict[str, Any], spec: HostSpec) -> None:
    want = spec.gpus
    for gpu in document["gpu"]["gpus"]:
        gpu |= {
            "persistence": want.persistence,
            "power_limit_w": float(want.power_limit_w),
            "locked_sm_clock": {"minimum_mhz": want.sm_clock_mhz, "maximum_mhz": want.sm_clock_mhz},
        }


def _docker(document: dict[str, Any], spec: HostSpec) -> None:
    document["files"][where.DOCKER_LOADED] = document["files"][where.DAEMON_JSON]
    document["files"][where.CDI_SPECS[0]] = file("kind: nvidia.com/gpu\n")
    document["docker"] |= {"live_restore": True, "cdi_devices": ["nvidia.com/gpu=all"]}
    document["limits"] = {"process": "docker.service", "memlock_kib": -1, "nofile": spec.memory.nofile}


def _firewall(document: dict[str, Any], spec: HostSpec) -> None:
    digest = firewall.digest_of(firewall.rules_text(spec))
    table = f'table inet b300kit {{\n\tcomment "{digest}"\n}}\n'
    document["firewall"]["table_text"] = table
    document["files"][where.FIREWALL_LOADED] = file(table)


def cpus(text: str) -> list[int]:
    """Kernel list format to numbers."""
    found: list[int] = []
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found


def planned(spec: HostSpec, document: dict[str, Any], lock: Lock = LOCK) -> dict[str, Step]:
    """The plan's steps by id, for the probe's JSON."""
    return {step.id: step for step in make_plan(spec, lock, parse(document)).steps}


def put(document: dict[str, Any], path: str, value: Any) -> None:
    """Set one fact; ``gpu.gpus.0.sms``."""
    *way, last = path.split(".")
    place: Any = document
    for key in way:
        place = place[int(key)] if isinstance(place, list) else place[key]
    place[int(last) if isinstance(place, list) else last] = value
