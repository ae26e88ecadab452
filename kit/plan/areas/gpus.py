"""GPUs as declared: refusals only. Software can set clocks, it cannot add SMs.

A warning that does not block (a pending row remap) is said in the reason of a kept step.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import TypeVar

from kit.facts.model import Facts, Gpu, GpuStack
from kit.facts.unknown import Unknown, is_known, show
from kit.plan.model import Action, Step
from kit.plan.steps import keep, need, need_each, refuse, silent
from kit.spec.model import Gpus, HostSpec, Lock

S = TypeVar("S")
T = TypeVar("T")
SPARE_MEMORY_MIB = 1024
"""NVML's total leaves out a firmware share that differs by driver; less than this apart is the same part."""
CHECKS = (
    "gpu.model",
    "gpu.sms",
    "gpu.compute_capability",
    "gpu.memory",
    "gpu.mig",
    "gpu.ecc",
    "gpu.remap",
    "gpu.recovery",
    "gpu.nvlink",
    "gpu.fabric",
    "gpu.pcie",
    "gpu.firmware",
)


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """One step a declared property, over all GPUs."""
    want = spec.gpus
    stack = facts.gpu
    gpus: tuple[Gpu, ...] | Unknown = stack.gpus if is_known(stack) else stack
    if not is_known(gpus):
        return [*(silent(id, gpus, "as declared") for id in ("gpu.count", *CHECKS)), _xids(stack)]
    found = [_count(want, gpus)]
    if not gpus:
        found += [silent(id, Unknown(unknown="there is no GPU"), "as declared") for id in CHECKS]
    else:
        found += _each(want, gpus)
        found += [_nvlink(want, gpus), _fabric(want, gpus), _pcie(want, gpus), _firmware(spec, gpus)]
    return [*found, _xids(stack)]


WRONG_HOST = "this host is not the one that was declared: ask the provider, or correct gpus in the host's file"


def _count(want: Gpus, gpus: tuple[Gpu, ...]) -> Step:
    return need(
        "gpu.count",
        "number of GPUs",
        gpus,
        lambda g: len(g) == want.count,
        expected=want.count,
        found=len(gpus),
        next="a GPU is missing or fell off the bus: look at `lspci -d 10de:` and the kernel log, then ask the provider",
    )


def _each(want: Gpus, gpus: tuple[Gpu, ...]) -> list[Step]:
    on_off = {True: "on", False: "off"}
    return [
        need_each("gpu.model", "model", gpus, lambda g: g.name, lambda v: v == want.model, expected=want.model, next=WRONG_HOST),
        _sms(want, gpus),
        need_each(
            "gpu.compute_capability",
            "compute capability",
            gpus,
            lambda g: g.compute_capability,
            lambda v: v == want.compute_capability,
            expected=want.compute_capability,
            next=WRONG_HOST,
        ),
        need_each(
            "gpu.memory",
            "memory in MiB",
            gpus,
            lambda g: g.memory_mib,
            lambda v: abs(v - want.memory_mib) <= SPARE_MEMORY_MIB,
            expected=want.memory_mib,
            next=WRONG_HOST,
        ),
        need_each(
            "gpu.mig",
            "MIG (current/pending)",
            gpus,
            lambda g: _both(g.mig_current, g.mig_pending, _pair),
            lambda v: v == _pair(want.mig, want.mig),
            expected=_pair(want.mig, want.mig),
            next=f"drain the host, `nvidia-smi -mig {int(want.mig)}` and reboot; persistence mode blocks the change",
        ),
        need_each(
            "gpu.ecc",
            "ECC (current/pending)",
            gpus,
            lambda g: _both(g.ecc_current, g.ecc_pending, _pair),
            lambda v: v == _pair(want.ecc, want.ecc),
            expected=_pair(want.ecc, want.ecc),
            next=f"drain the host, `nvidia-smi -e {int(want.ecc)}` and reboot; want {on_off[want.ecc]} now and after",
        ),
        _remap(gpus),
        need_each(
            "gpu.recovery",
            "recovery action",
            gpus,
            lambda g: g.recovery_action,
            lambda v: v == "none",
            expected="none",
            next="the driver asks for this action: drain the host, do it, and ask the provider if it returns",
        ),
    ]


def _pair(current: bool, pending: bool) -> str:
    word = {True: "on", False: "off"}
    return f"{word[current]}/{word[pending]}"


def _both(first: T | Unknown, second: S | Unknown, text: Callable[[T, S], str]) -> str | Unknown:
    """Two facts in words; the first unknown one when not both are known."""
    if not is_known(first):
        return first
    return text(first, second) if is_known(second) else second


def _sms(want: Gpus, gpus: tuple[Gpu, ...]) -> Step:
    """SMs from the CUDA driver, and NVML's cores / 128 must agree with it where it is offered."""

    def counted(gpu: Gpu) -> str | Unknown:
        if not is_known(gpu.sms):
            return gpu.sms
        if is_known(gpu.cores_over_128) and gpu.cores_over_128 != gpu.sms:
            return f"{gpu.sms} by CUDA but {gpu.cores_over_128:g} by NVML cores/128"
        return str(gpu.sms)

    step = need_each(
        "gpu.sms",
        "number of SMs",
        gpus,
        counted,
        lambda v: v == str(want.sms),
        expected=want.sms,
        next=f"{WRONG_HOST} (B300 has 148 SMs, GB300 has 152; a kernel grid sized for one fails on the other)",
    )
    unchecked = [str(g.index) for g in gpus if not is_known(g.cores_over_128)]
    note = f"; NVML's cores/128 is not offered on GPU {', '.join(unchecked)}" if unchecked else "; NVML's cores/128 agrees"
    return step.model_copy(update={"reason": step.reason + note}) if step.action is Action.KEEP else step


def _remap(gpus: tuple[Gpu, ...]) -> Step:
    """A failed remap blocks; a pending one is only warned about: the row is out of use, the next reset completes it."""
    next = "a memory row could not be remapped: the GPU needs replacing (RMA)"
    step = need_each(
        "gpu.remap", "failed row remap", gpus, lambda g: g.remap_failed, lambda v: not v, expected="False", next=next
    )
    waiting = [f"GPU {g.index}" for g in gpus if not (is_known(g.remap_pending) and not g.remap_pending)]
    if step.action is not Action.KEEP or not waiting:
        return step
    found = ", ".join(waiting)
    return keep(
        "gpu.remap",
        f"WARNING: row remap pending or not readable on {found}: reset the GPU at the next drain",
        expected="none pending",
        found=found,
    )


def _nvlink(want: Gpus, gpus: tuple[Gpu, ...]) -> Step:
    if want.nvlink == "none":
        return keep("gpu.nvlink", "NVLink is declared as not needed", expected="none", found="not judged")
    if want.count == 1:
        return keep("gpu.nvlink", "one GPU is declared: there is no pair", expected="no pair", found="not judged")
    bad = [] if len(gpus) > 1 else [f"{len(gpus)} GPU, no pair"]
    for one, other in permutations(gpus, 2):
        state = one.p2p_nvlink.get(str(other.index), Unknown(unknown="not read"))
        if not is_known(state) or not state:
            bad.append(f"{one.index}-{other.index}: {'no' if is_known(state) else show(state)}")
    if bad:
        return refuse(
            "gpu.nvlink",
            f"P2P over NVLink is not there for {', '.join(bad)}",
            expected="all pairs",
            found=", ".join(bad),
            next="look at `nvidia-smi topo -p2p n` and Fabric Manager's log; a cable, a switch or the fabric is down",
        )
    return keep(
        "gpu.nvlink",
        f"P2P over NVLink works for all {len(gpus) * (len(gpus) - 1)} directed pairs",
        expected="all pairs",
        found="all pairs",
    )


def _fabric(want: Gpus, gpus: tuple[Gpu, ...]) -> Step:
    """`nvidia-smi` looks healthy while the fabric is still in progress, and CUDA then fails with error 802."""
    state = "completed/success" if want.fabric == "completed" else "not_supported"

    def read(gpu: Gpu) -> str | Unknown:
        if want.fabric == "absent":
            return gpu.fabric_state
        return _both(gpu.fabric_state, gpu.fabric_status, lambda state, status: f"{state}/{status}")

    return need_each(
        "gpu.fabric",
        "NVLink fabric",
        gpus,
        read,
        lambda v: v == state,
        expected=state,
        next="look at Fabric Manager and NVLSM (mlx5_ib and ib_umad loaded?); restart them only with no GPU client running",
    )


def _pcie(want: Gpus, gpus: tuple[Gpu, ...]) -> Step:
    """Width now and the generation it can train to; at rest a link may drop its speed, so the current one proves nothing."""
    if want.pcie is None:
        return keep("gpu.pcie", "no PCIe link is declared", found="not judged")
    expected = f"gen {want.pcie.generation} x{want.pcie.width}"
    return need_each(
        "gpu.pcie",
        "PCIe link",
        gpus,
        lambda gpu: _both(gpu.pcie_generation_max, gpu.pcie_width, lambda generation, width: f"gen {generation} x{width}"),
        lambda v: v == expected,
        expected=expected,
        next="a slot, riser or BIOS setting limits the link: ask the provider",
    )


def _firmware(spec: HostSpec, gpus: tuple[Gpu, ...]) -> Step:
    if not spec.burn_in.same_firmware:
        return keep("gpu.firmware", "equal firmware is not declared", found="not judged")
    readers: tuple[tuple[str, Callable[[Gpu], str | Unknown]], ...] = (
        ("VBIOS", lambda g: g.vbios),
        ("InfoROM", lambda g: g.inforom),
    )
    for what, read in readers:
        values = [read(g) for g in gpus]
        known = [v for v in values if is_known(v)]
        if len(known) != len(values) or len(set(known)) != 1:
            found = ", ".join(f"GPU {g.index}: {show(v)}" for g, v in zip(gpus, values, strict=True))
            return refuse(
                "gpu.firmware",
                f"{what} is not alike on all GPUs ({found})",
                expected="alike",
                found=found,
                next="ask the provider to bring all GPUs to one firmware",
            )
    return keep("gpu.firmware", "VBIOS and InfoROM are alike on all GPUs", expected="alike", found="alike")


def _xids(stack: GpuStack | Unknown) -> Step:
    return need(
        "gpu.xids",
        "Xid errors since boot",
        stack.xids_since_boot if is_known(stack) else stack,
        lambda x: not x,
        expected="none",
        found=", ".join(stack.xids_since_boot) or "none" if is_known(stack) and is_known(stack.xids_since_boot) else None,
        next="look each Xid up in NVIDIA's list and in the kernel log; after mending the cause, reboot (the count is by boot)",
    )
