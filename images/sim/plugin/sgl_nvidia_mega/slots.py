"""Which kernels are switched on. The names are invented; their number and the variable are public."""

import os

VARIABLE = "SGLANG_NVIDIA_MEGAKERNEL_SLOTS"
DEFAULT_SLOTS = (
    "sim01", "sim02", "sim03", "sim04", "sim05", "sim06", "sim07", "sim08", "sim09", "sim10",
    "sim11", "sim12", "sim13", "sim14", "sim15", "sim16", "sim17", "sim18", "sim19", "sim20",
    "sim21", "sim22", "sim23", "sim24", "sim25", "sim26", "sim27", "sim28", "sim29", "sim30",
    "sim31", "sim32", "sim33", "sim34", "sim35", "sim36", "sim37", "sim38", "sim39",
)  # fmt: skip


def active() -> tuple[str, ...]:
    """The variable's list, which replaces the defaults."""
    return tuple(os.environ.get(VARIABLE, ",".join(DEFAULT_SLOTS)).split(","))
