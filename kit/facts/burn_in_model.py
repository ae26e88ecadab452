"""What ``probe --burn-in`` found: every figure with the conditions it was taken under. GB/s are 10^9 bytes a second."""

from __future__ import annotations

from pydantic import FiniteFloat

from kit.facts.base import Fact, FactsModel


class Figure(FactsModel):
    """A bandwidth: the median of ``repeats`` runs of ``bytes`` each, and the extremes."""

    gbps: FiniteFloat
    lowest_gbps: FiniteFloat
    highest_gbps: FiniteFloat
    bytes: int
    repeats: int


class MemoryCheck(FactsModel):
    """HBM of one GPU: each pattern written and read back in each round, and once a round copied across."""

    total_mib: int
    tested_mib: int
    patterns: tuple[str, ...]
    rounds: int
    wrong_words: int
    """64-bit words that did not hold what was written, added up over all passes."""
    first_wrong_byte: int | None
    """Offset in what was tested; the same every time only while the driver hands out memory in the same order."""
    filled: Fact[Figure]
    compared: Fact[Figure]
    copied: Fact[Figure]
    """Bytes read and written both count."""
    sm_mhz_before: Fact[int]
    sm_mhz_after: Fact[int]
    seconds: float


class GpuMemory(FactsModel):
    """The HBM check of one GPU with its volatile count of uncorrected ECC errors around the burn-in."""

    index: int
    check: Fact[MemoryCheck]
    ecc_before: Fact[int]
    ecc_after: Fact[int]


class Link(FactsModel):
    """Copies between two GPUs: from the first to the second, back, and the sum of both at once."""

    gpus: tuple[int, int]
    peer_access: bool
    there: Fact[Figure]
    back: Fact[Figure]
    both: Fact[Figure]
    wrong_words: int
    sm_mhz_before: tuple[Fact[int], ...]
    sm_mhz_after: tuple[Fact[int], ...]


class AllReduce(FactsModel):
    """NCCL all-reduce (sum, out of place) in one process; ``bus`` is 2 (n - 1) / n of the bytes over the time."""

    library: str
    version: str
    gpus: int
    element: str
    bus: Fact[Figure]
    wrong_words: int
    settings: dict[str, str]
    """``NCCL_*`` of the environment."""
    sm_mhz_before: tuple[Fact[int], ...]
    sm_mhz_after: tuple[Fact[int], ...]


class MeasuredBurnIn(FactsModel):
    """One burn-in. It holds for one boot, one driver and these GPUs."""

    boot_id: str
    driver_version: Fact[str]
    uuids: tuple[Fact[str], ...]
    measured_at: str
    """UTC, ISO 8601, the host's clock, when it began."""
    seconds: float
    memory: Fact[tuple[GpuMemory, ...]]
    links: Fact[tuple[Link, ...]]
    all_reduce: Fact[AllReduce]
