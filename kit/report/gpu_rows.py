"""The GPUs of a host as rows. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit.facts.model import Facts, Gpu
from kit.facts.unknown import Unknown, is_known
from kit.report import row as rows
from kit.report.row import Area, Row, row
from kit.spec.model import HostSpec


def gpu_areas(facts: Facts, spec: HostSpec | None) -> tuple[Area, ...]:
    """The GPUs, equal values together, and their driver; one row when the GPU stack did not answer."""
    stack = facts.gpu
    if not is_known(stack):
        return (Area("GPUs", (row("GPU stack", stack),)),)
    want = spec.gpus if spec else None
    driver = (
        row("Driver (loaded module)", stack.driver_version, f"at least {want.driver.minimum}" if want else ""),
        row("Driver library", stack.library_version),
        row("CUDA of the driver", stack.cuda_version),
        row("Fabric Manager", stack.fabric_manager_version),
        row("Xids since boot", stack.xids_since_boot, text=lambda xids: "; ".join(xids) or "none"),
    )
    if not is_known(stack.gpus):
        return (Area("GPUs", (*driver, row("GPUs", stack.gpus))),)
    gpus = stack.gpus

    def each(label: str, read: Callable[[Gpu], Any], declared: object = "", text: Callable[[Any], object] = str) -> Row:
        return rows.each(label, [(gpu.index, read(gpu)) for gpu in gpus], declared, "GPU", "GPUs", text)

    def yes(value: bool) -> str:
        return "on" if value else "off"

    return (
        Area(
            "GPUs",
            (
                row("GPUs", len(gpus), want.count if want else ""),
                each("Model", lambda g: g.name, want.model if want else ""),
                each("SMs (CUDA driver)", lambda g: g.sms, want.sms if want else ""),
                each("SMs (NVML cores / 128)", lambda g: g.cores_over_128, text=lambda v: f"{v:g}"),
                each("Compute capability", lambda g: g.compute_capability, want.compute_capability if want else ""),
                each("Memory", lambda g: g.memory_mib, f"{want.memory_mib} MiB" if want else "", lambda v: f"{v} MiB"),
                each("Power limit", lambda g: g.power_limit_w, f"{want.power_limit_w} W" if want else "", lambda v: f"{v:g} W"),
                each("Power drawn", lambda g: g.power_draw_w, text=lambda v: f"{v:.0f} W"),
                each(
                    "SM clock locked at",
                    lambda g: g.locked_sm_clock,
                    f"{want.sm_clock_mhz} MHz" if want else "",
                    lambda v: (
                        f"{v.minimum_mhz}-{v.maximum_mhz} MHz" if v.minimum_mhz != v.maximum_mhz else f"{v.maximum_mhz} MHz"
                    ),
                ),
                each("SM clock now", lambda g: g.sm_clock_mhz, text=lambda v: f"{v} MHz"),
                each("SM clock at most", lambda g: g.max_sm_clock_mhz, text=lambda v: f"{v} MHz"),
                each("Clock held back by", lambda g: g.clock_reasons, text=lambda v: ", ".join(v) or "nothing"),
                each("Temperature", lambda g: g.temperature_c, text=lambda v: f"{v} °C"),
                each("Persistence", lambda g: g.persistence, yes(want.persistence) if want else "", yes),
                each("MIG", lambda g: g.mig_current, yes(want.mig) if want else "", yes),
                each("MIG after a reset", lambda g: g.mig_pending, text=yes),
                each("ECC", lambda g: g.ecc_current, yes(want.ecc) if want else "", yes),
                each("Uncorrected ECC errors", lambda g: g.ecc_uncorrected),
                each("Rows remapped after an error", lambda g: g.remapped_uncorrectable),
                each("Row remap pending", lambda g: g.remap_pending),
                each("Row remap failed", lambda g: g.remap_failed),
                each("Recovery asked for", lambda g: g.recovery_action),
                each("NVLinks up", lambda g: g.nvlinks_active),
                each("NVLink to the others", _peers, {"all_pairs": "all pairs"}.get(want.nvlink, "none") if want else ""),
                each("NVLink fabric", lambda g: g.fabric_state, want.fabric if want else ""),
                each(
                    "PCIe link",
                    lambda g: _both(g.pcie_generation, g.pcie_width),
                    f"generation {want.pcie.generation}, x{want.pcie.width}" if want and want.pcie else "",
                    lambda v: f"generation {v[0]}, x{v[1]}",
                ),
                each("VBIOS", lambda g: g.vbios),
                each("NUMA node", lambda g: g.numa_node),
            ),
        ),
        Area("Driver", driver),
    )


def _both(first: Any, second: Any) -> Any:
    """Both values, or the first Unknown of the two."""
    return next((value for value in (first, second) if not is_known(value)), (first, second))


def _peers(gpu: Gpu) -> Any:
    bad = sorted(peer for peer, ok in gpu.p2p_nvlink.items() if is_known(ok) and not ok)
    unread = next((ok for ok in gpu.p2p_nvlink.values() if not is_known(ok)), None)
    if bad:
        return f"not to GPU {', '.join(bad)}"
    if unread is not None:
        return unread
    return "all pairs" if gpu.p2p_nvlink else Unknown(unknown="no other GPU was seen")
