"""What a boot loses is set again by a unit of ours: its settings, its script, the unit file, and the unit itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kit.facts.model import Facts
from kit.plan import render
from kit.plan.model import Step
from kit.plan.steps import file_step, unit_step
from kit.plan.where import boot_config, boot_result, boot_script, boot_unit


def steps(
    area: str,
    settings: Mapping[str, Any],
    facts: Facts,
    *,
    sets: str,
    after: str,
    disruptive: bool = False,
) -> list[Step]:
    """Three files, then the unit that runs from them.

    ``area`` is also the role, and names the script in ``kit/plan/onhost``. ``sets``: what it sets, in words. ``after``: the
    units that come first at boot. ``disruptive``: whether running it could disturb an engine; its unit file always does.
    """
    config, script, unit = boot_config(area), boot_script(area), boot_unit(area)
    values = {"sets": sets, "after": after, "script": script, "config": config, "result": boot_result(area)}
    files = [
        file_step(f"{area}.config_file", render.settings(config, settings), facts, area, why="what the boot unit sets"),
        file_step(f"{area}.script_file", render.script(script, f"{area}.py"), facts, area, why="what the boot unit runs"),
        file_step(
            f"{area}.unit_file",
            render.unit(unit, "boot.service.j2", **values),
            facts,
            area,
            why="the boot unit",
            disruptive=True,
        ),
    ]
    why = f"sets {sets} at each boot and reads back"
    return [*files, unit_step(f"{area}.unit", unit, facts, area, files, why=why, disruptive=disruptive)]
