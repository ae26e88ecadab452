"""hardware: GPUs, clocks under load and fabric still as planned, no new Xid in the kernel's log since the engine started."""

from __future__ import annotations

from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, Judgement, fault, judged


class GpuSample(Frozen):
    """One GPU while the gates load it. None: could not be read."""

    index: int
    sms: int | None
    """From the CUDA driver."""
    sm_clock_mhz: int | None
    """The lowest seen under load."""
    fabric: str | None


class Evidence(Frozen):
    """What the plan declared, and what is there."""

    count: int
    sms: int
    sm_clock_mhz: int
    fabric: str
    gpus: tuple[GpuSample, ...] | None
    xids: tuple[str, ...] | None
    """Lines of the kernel's log since the engine started."""


class Limits(Frozen):
    """A clock under load may fall this little below the locked one."""

    clock_fraction: float = 0.98


def judge(evidence: Evidence, limits: Limits) -> Judgement:
    """Each GPU by itself; what could not be read is inconclusive, never fine."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    gpus = evidence.gpus
    if gpus is None:
        unknown.append(fault("hardware.unknown", "GPUs", evidence.count, "could not be read", "look at nvidia-smi"))
    elif len(gpus) != evidence.count:
        wrong.append(fault("hardware.count", "GPUs", evidence.count, len(gpus), "one fell off the bus: see the kernel's log"))
    for gpu in gpus or ():
        where = f"GPU {gpu.index}"
        floor = evidence.sm_clock_mhz * limits.clock_fraction
        for code, value, good, expected in (
            ("sms", gpu.sms, gpu.sms == evidence.sms, f"{evidence.sms} SMs"),
            ("clock", gpu.sm_clock_mhz, gpu.sm_clock_mhz is not None and gpu.sm_clock_mhz >= floor, f"at least {floor:.0f} MHz"),
            ("fabric", gpu.fabric, gpu.fabric == evidence.fabric, f"fabric {evidence.fabric}"),
        ):
            if value is None:
                unknown.append(fault("hardware.unknown", f"{where} {code}", expected, "could not be read"))
            elif not good:
                wrong.append(fault(f"hardware.{code}", where, expected, value, "invoke plan: the host is not as declared"))
    if evidence.xids is None:
        unknown.append(fault("hardware.unknown", "kernel log", "no new Xid", "could not be read"))
    wrong += [
        fault("hardware.xid", "kernel log", "no new Xid", line, "drain the node; see the Xid's meaning")
        for line in evidence.xids or ()
    ]
    clocks = [gpu.sm_clock_mhz for gpu in gpus or () if gpu.sm_clock_mhz is not None]
    figures = {"gpus": len(gpus or ()), "sm_clock_mhz_min": min(clocks, default=None), "xids": len(evidence.xids or ())}
    return judged(wrong, unknown, f"{evidence.count} GPUs of {evidence.sms} SMs at the locked clock, no new Xid", figures)
