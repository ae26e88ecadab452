"""GPUs described for the container engine (CDI): explicit device nodes, which a daemon-reload does not detach.

Ours is made at each boot under /run. One in /etc, or kept by NVIDIA's own refresh unit, is somebody else's and left alone.
"""

from __future__ import annotations

from kit.facts.model import Facts
from kit.facts.unknown import is_known
from kit.plan import render
from kit.plan.model import Step
from kit.plan.steps import change, file_step, keep, pending, refuse, unit_step
from kit.plan.where import CDI_REFRESH_UNIT, CDI_SPECS, CDI_UNIT, NVIDIA_CTK
from kit.spec.model import HostSpec

ROLE = "container_engine"


def steps(spec: HostSpec, facts: Facts) -> list[Step]:
    """Unit file, unit, and whether a description is there. Somebody else's (NVIDIA's refresh unit) is left alone:
    two descriptions of the same devices conflict."""
    ids = ("docker.cdi_unit_file", "docker.cdi_unit", "docker.cdi")
    if not spec.docker.cdi:
        return [keep(id, "CDI is declared off", found="not judged") for id in ids]
    present = [p for p in CDI_SPECS if (f := facts.files.get(p)) is not None and f.exists]
    tool = facts.files.get(NVIDIA_CTK)
    refresh = facts.services.get(CDI_REFRESH_UNIT)
    foreign = refresh is not None and is_known(refresh.load) and refresh.load == "loaded"
    if present and (foreign or CDI_SPECS[1] in present):
        found = ", ".join(present)
        return [
            keep(id, f"the GPUs are described for CDI already, not by this kit ({found})", expected="described", found=found)
            for id in ids
        ]
    if tool is None or not tool.exists:
        return [
            refuse(
                id,
                "docker.cdi is declared, but there is no nvidia-ctk to describe the GPUs with",
                expected=NVIDIA_CTK,
                found="absent",
                next="install nvidia-container-toolkit from the host's own apt source, or declare docker.cdi false",
            )
            for id in ids
        ]
    unit_file = render.unit(CDI_UNIT, "cdi.service.j2", nvidia_ctk=NVIDIA_CTK, output=CDI_SPECS[0])
    file = file_step(ids[0], unit_file, facts, ROLE, why="describes the GPUs at each boot", disruptive=True)
    unit = unit_step(ids[1], CDI_UNIT, facts, ROLE, [file], why="describes the GPUs at each boot")
    if present and not pending([file, unit]):
        return [file, unit, keep(ids[2], "the GPUs are described for CDI", expected="described", found=", ".join(present))]
    spec_step = change(
        ids[2],
        "the GPUs are not described for CDI yet" if not present else "the description is made again",
        ROLE,
        expected="described",
        found=", ".join(present) or "absent",
        arguments={"units_restart": [CDI_UNIT]},
    )
    return [file, unit, spec_step]
