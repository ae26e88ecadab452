"""``probe --burn-in``: runs the burn-in on the host and keeps what it found for this boot. Edge: ssh, the cache."""

from __future__ import annotations

import logging

from kit.apply.ssh import Remote
from kit.errors import ExitCode, KitError, failure
from kit.facts.burn_in_model import MeasuredBurnIn
from kit.facts.collect import run_script
from kit.facts.measured_cache import store_burn_in
from kit.facts.model import Facts
from kit.facts.probe import burn_in_script
from kit.facts.request import encoded
from kit.facts.unknown import is_known
from kit.spec.target import Target

log = logging.getLogger("kit.facts.burn_in")

_BASE_S = 60.0
_PER_GPU_S = 30.0
_CHILDREN = 5
"""NVML before and after, memory, links, NCCL: each may take its own time limit."""


def burn_in(target: Target, facts: Facts, remote: Remote) -> MeasuredBurnIn:
    """Load the GPUs for a while, measure them, and cache the result by boot id.

    Raises KitError(REFUSED) with burn_in.no_gpu; with burn_in.refused, one failure a reason, when the host says that it must
    not be loaded; with burn_in.rebooted when it restarted since ``facts`` were read. Otherwise as
    :func:`kit.facts.collect.run_script` does.
    """
    if not is_known(facts.gpu):
        step = "install the driver; a host without GPUs declares its burn_in `absent`"
        raise KitError(failure("burn_in.no_gpu", target.name, "a GPU stack", facts.gpu.unknown, step), ExitCode.REFUSED)
    gpus = len(facts.gpu.gpus) if is_known(facts.gpu.gpus) else 1
    timeout_s = _BASE_S + _PER_GPU_S * gpus
    log.info("%s: loading its GPUs, at most %d s for each of memory, links and NCCL", target.name, timeout_s)
    library = target.spec.burn_in.nccl_library
    argument = encoded({"nccl_library": library, "timeout_s": timeout_s})
    answer = run_script(remote, burn_in_script(), argument, _CHILDREN * timeout_s + _BASE_S)
    if "refused" in answer:
        step = f"end what uses its GPUs (`invoke leave --host {target.name}` when it serves), then again"
        problems = [failure("burn_in.refused", target.name, "idle GPUs, serving nobody", why, step) for why in answer["refused"]]
        raise KitError(problems, ExitCode.REFUSED)
    measured = MeasuredBurnIn.model_validate(answer["measured"])
    if measured.boot_id != facts.host.boot_id:
        raise KitError(
            failure("burn_in.rebooted", target.name, f"boot {facts.host.boot_id}", measured.boot_id, "probe again"),
            ExitCode.REFUSED,
        )
    store_burn_in(target.name, measured)
    return measured
