"""An SGLang general plugin: swaps operators of DeepSeek-V4.1 for ours, each behind its own switch and width limit.

Nothing is swapped unless the environment says so: ``B300KIT_KERNELS=stats,wo_a`` or ``stats=8,wo_a=6`` or ``all``. Hooks only, no
change to SGLang's files. An SGLang version that was not looked at is refused. What the swap changes in numbers:

stats   the mixing coefficients: fp32 sums in another order, within 1e-5 of exact (SGLang's own: within 2e-5 of ours)
wo_a    the grouped output projection: fp32 sums in another order, one bf16 rounding, as SGLang's
"""

from __future__ import annotations

import importlib.metadata
import logging
import os

from ..common.errors import KernelError
from .settings import ENVIRONMENT, VERSIONS, parse

logger = logging.getLogger(__name__)


class PluginRefused(KernelError):
    """The plugin does not take part in this process; SGLang logs it and goes on without."""


def register() -> None:
    """The entry point ``b300kit_kernels``; SGLang calls it once in every process.

    Raises PluginRefused: settings that say nothing we know, an SGLang version not looked at, no kernel library.
    """
    switches, wrong = parse(os.environ.get(ENVIRONMENT, ""))
    if wrong:
        raise PluginRefused(f"{ENVIRONMENT}: {'; '.join(wrong)}")
    if not switches:
        logger.info("b300kit kernels: off (%s is empty)", ENVIRONMENT)
        return
    version = importlib.metadata.version("sglang")
    if version not in VERSIONS:
        raise PluginRefused(f"sglang {version}: expected one of {', '.join(VERSIONS)}; its operators were not looked at")
    from . import hooks

    if not hooks.ON_CPU:
        from ..common.library import library

        library()  # UnsupportedDevice, with the places where it was looked for
    from sglang.srt.plugins.hook_registry import HookRegistry, HookType

    for name, limit in switches.items():
        target, make = hooks.TARGETS[name]
        HookRegistry.register(target, make(limit), HookType.AROUND)
    listed = ", ".join(f"{name} up to {limit} rows" for name, limit in switches.items())
    logger.warning("b300kit kernels: active (%s)", listed)
