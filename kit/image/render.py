"""The Dockerfile and the checker's expectations, from what was declared and locked. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, StrictUndefined

from kit.errors import ExitCode, Failure, KitError, failure
from kit.image.model import FORBIDDEN_VARIABLES, ImageLock, ImageSpec, Wheel
from kit.patch.model import Patch
from kit.slots.model import Composed

KEY = "org.b300kit"
"""Prefix of this project's own annotations; ``org.opencontainers.image.*`` are the published ones."""
ENTRY_POINT = "nvidia_megakernel"
KERNELS = "b300kit-kernels"


def site_packages(spec: ImageSpec) -> str:
    """Where the image's Python packages are."""
    return f"{spec.prefix}/lib/python{spec.python}/site-packages"


def check_spec(spec: ImageSpec) -> None:
    """Raises KitError(USAGE) for every variable that would falsify figures or hide a fault."""
    bad: list[Failure] = []
    for name, forbidden in FORBIDDEN_VARIABLES.items():
        value = spec.environment.get(name)
        if value is not None and forbidden in (None, value):
            where = f"image.yml environment.{name}"
            bad.append(failure("image.variable", where, "unset", value, "take it out: it falsifies figures or hides a fault"))
    if spec.simulated != (spec.stand_ins is not None):
        found = f"simulated: {str(spec.simulated).lower()}, stand-ins: {spec.stand_ins}"
        bad.append(failure("image.simulated", "image.yml", "stand-ins exactly when simulated", found, "correct one of the two"))
    if bad:
        raise KitError(bad, ExitCode.USAGE)


def lock_sha256(lock: ImageLock) -> str:
    """Of what the lock says, however its file is written."""
    return hashlib.sha256(json.dumps(lock.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def environment(spec: ImageSpec, slots: Composed) -> dict[str, str]:
    """Variables of the image: what is declared, and the slot list of the route."""
    fixed = {"PATH": f"{spec.prefix}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": spec.home}
    return {**fixed, **spec.environment, **slots.environment}


def labels(spec: ImageSpec, lock: ImageLock) -> dict[str, str]:
    """Annotations: for people and registries. No check of this kit reads them."""
    sglang = lock.packages.get("sglang")
    return {
        "org.opencontainers.image.title": spec.title,
        "org.opencontainers.image.version": sglang.version if sglang is not None else "unresolved",
        "org.opencontainers.image.base.digest": lock.base.digest or "unresolved",
        f"{KEY}.profile": spec.name,
        f"{KEY}.simulated": str(spec.simulated).lower(),
        f"{KEY}.lock-sha256": lock_sha256(lock),
        f"{KEY}.plugin-commit": lock.plugin.commit or ("folder" if lock.plugin.tree_sha256 else "unresolved"),
        f"{KEY}.plugin-tree-sha256": lock.plugin.tree_sha256 or "unresolved",
        f"{KEY}.patch-series": spec.plugin.series,
        f"{KEY}.patch-series-sha256": lock.plugin.series_sha256,
        f"{KEY}.route": str(spec.plugin.route),
    }


def dockerfile(template: str, spec: ImageSpec, lock: ImageLock, base: str, slots: Composed) -> str:
    """The template filled with values; ``base`` is what FROM names. A value that is missing is an error, never empty."""
    words = Environment(undefined=StrictUndefined, keep_trailing_newline=True, autoescape=False)  # noqa: S701 - no HTML
    values: dict[str, Any] = {
        "base": base,
        "user": spec.user,
        "uid": spec.uid,
        "prefix": spec.prefix,
        "site_packages": site_packages(spec),
        "home": spec.home,
        "environment": _pairs(environment(spec, slots)),
        "labels": _pairs(labels(spec, lock)),
    }
    return words.from_string(template).render(values)


def _pairs(values: Mapping[str, str]) -> str:
    return " ".join(f"{name}={json.dumps(value)}" for name, value in values.items())


def requirements(wheels: Mapping[str, Wheel | None]) -> str:
    """For pip: each package once, by version and hash. An unresolved one is left as a comment that pip would not install."""
    lines = [
        f"{name}=={wheel.version} --hash=sha256:{wheel.sha256}" if wheel is not None else f"# {name}: unresolved"
        for name, wheel in sorted(wheels.items())
    ]
    return "\n".join(lines) + "\n"


def expected(
    spec: ImageSpec, lock: ImageLock, patches: tuple[Patch, ...], slots: Composed, own: tuple[str, ...]
) -> dict[str, Any]:
    """What the checker compares the finished image with. ``patches`` are those of the route."""
    conditions = [condition for patch in patches for condition in patch.post_conditions]
    fields: dict[str, Any] = {}
    for condition in conditions:
        if condition.contains is not None:
            fields[condition.field] = sorted({*fields.get(condition.field, []), condition.contains})
        else:
            fields[condition.field] = condition.equals
    first = conditions[0]
    packages = {name: wheel.version for name, wheel in sorted(lock.packages.items()) if wheel is not None}
    return {
        "schema_version": 1,
        "image": spec.name,
        "simulated": spec.simulated,
        "lock_sha256": lock_sha256(lock),
        "prefix": spec.prefix,
        "site_packages": site_packages(spec),
        "packages": {**packages, KERNELS: lock.kernels_version},
        "own": sorted(own),
        "debian": dict(sorted(lock.base.packages.items())),
        "plugin": {
            "entry_point": ENTRY_POINT,
            "package": spec.plugin.package,
            "architecture": first.architecture,
            "isa": first.isa,
            "fields": fields,
        },
        "slots": {"route": str(slots.route), "active": list(slots.slots), "environment": dict(slots.environment)},
        "architectures": {
            spec.plugin.package: list(spec.plugin_architectures),
            KERNELS.replace("-", "_"): list(spec.kernel_architectures),
        },
        "user": spec.user,
        "uid": spec.uid,
        "forbidden": FORBIDDEN_VARIABLES,
        "build_tools": list(spec.build_tools),
    }
