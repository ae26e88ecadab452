"""What the plan needs to know of a host, as a request to the probe. Pure."""

from __future__ import annotations

from kit.facts.request import ProbeRequest
from kit.plan.areas import firewall, memory
from kit.plan.where import FSTAB, MANAGED_FILES, READ_FILES, READ_UNITS
from kit.spec.model import HostSpec


def wanted(spec: HostSpec) -> ProbeRequest:
    """Every package, unit, file, user and folder that a step looks at."""
    packages = {*spec.packages.hold, *spec.gpus.driver.packages, spec.docker.package, firewall.PACKAGE}
    return ProbeRequest(
        packages=tuple(sorted(packages)),
        services=READ_UNITS,
        sysctls=memory.SYSCTLS,
        files=(*MANAGED_FILES, *READ_FILES, spec.data_dir),
        users=(spec.service_user,),
        disks=(spec.data_dir, spec.docker.data_root, FSTAB, "/boot"),
    )
