"""A live host's facts as a proposed spec. Pure: what was seen goes in with where it was seen, what was not is left to fill in.

Nothing is guessed: an unknown fact becomes ``null # FILL IN``, and ``invoke fleet.check`` refuses the file until it is filled.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from kit.facts.model import Facts, Gpu, GpuStack, LogicalCpu
from kit.facts.unknown import Unknown, is_known
from kit.spec.model import Connection, Lock

HOLD_CANDIDATES = (
    *("docker.io", "docker-ce", "containerd", "containerd.io"),
    *("nvidia-container-toolkit", "libnvidia-container1", "cuda-drivers"),
    *(f"nvidia-driver-{branch}{kind}" for branch in (580, 590, 595) for kind in ("", "-open", "-server", "-server-open")),
    *(f"nvidia-fabricmanager-{branch}" for branch in (580, 590, 595)),
    *("nvidia-driver", "nvidia-open", "nvidia-fabricmanager", "nvlsm"),
    *("linux-image-amd64", "linux-image-generic", "linux-headers-amd64", "linux-headers-generic"),
)
"""Packages that must not move on a serving node, as Debian, Ubuntu, NVIDIA and Docker name them; those installed are proposed."""

T = TypeVar("T")


class _Missing:
    """A value that a person must give."""

    def __init__(self, why: str) -> None:
        self.why = why


Value = Any


def _same(values: Iterable[T | Unknown], what: str) -> T | _Missing:
    """The one value that all have; else what to look at."""
    seen: list[T] = []
    for value in values:
        if not is_known(value):
            return _Missing(f"{what} could not be read: {value}")
        seen.append(value)
    if not seen:
        return _Missing(f"no {what} was seen")
    different = Counter(map(str, seen))
    if len(different) > 1:
        told = ", ".join(f"{count} x {value}" for value, count in different.items())
        return _Missing(f"{what} differs: {told}")
    return seen[0]


def _one(value: T | Unknown, what: str) -> T | _Missing:
    return _same([value], what)


def _then(value: T | _Missing, change: Callable[[T], Any]) -> Any:
    return value if isinstance(value, _Missing) else change(value)


class _Text:
    """Lines of YAML with a comment each."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.missing: list[str] = []
        self._path: list[str] = []

    def section(self, key: str, depth: int) -> None:
        self._path[depth:] = [key]
        self.lines.append(f"{'  ' * depth}{key}:")

    def put(self, key: str, value: Value, comment: str = "", depth: int = 0) -> None:
        if isinstance(value, _Missing):
            self.missing.append(".".join([*self._path[:depth], key]))
            value, comment = None, f"FILL IN: {value.why}"
        note = f" # {_plain(comment)}" if comment else ""
        self.lines.append(f"{'  ' * depth}{key}: {_scalar(value)}{note}")

    def note(self, text: str, depth: int = 0) -> None:
        self.lines.append(f"{'  ' * depth}# {_plain(text)}")


def _plain(comment: str) -> str:
    """A host's words in a comment stay one line of printable text."""
    return "".join(c if c.isprintable() else "?" for c in comment)[:160]


def _scalar(value: Value) -> str:
    """JSON is YAML: text always in quotes, so nothing a host reports can be read as anything but text."""
    return json.dumps(value, ensure_ascii=True)


def unlocked(facts: Facts, lock: Lock) -> list[str]:
    """Packages that the proposal holds and the lock has no line for, not even ``null``."""
    return [name for name in _installed(facts) if name not in lock.packages]


def _installed(facts: Facts) -> list[str]:
    return [name for name in HOLD_CANDIDATES if name in facts.packages and is_known(facts.packages[name])]


def propose(
    facts: Facts, name: str, connection: Connection, known: Mapping[str, Sequence[str]], add: Sequence[str] = ()
) -> tuple[str, list[str]]:
    """The text of ``hosts/NAME.yml``, and the keys that are left to fill in.

    known: ``image`` and ``engine`` -> the names to choose from. add: packages that still need a line in the lock.
    """
    out = _Text()
    out.lines.append("# yaml-language-server: $schema=../schema/host.schema.json")
    out.note(f"Proposed from the facts of {facts.collected_at}. It says what the host IS: correct it to what it MUST be.")
    if add:
        out.note("Add to lock.yml, under packages, what it has no line for yet (one line each, `NAME: null`):")
        for package in add:
            out.note(f"  {package}: null")
    host = f"--host {name}"
    out.note(f"Then `invoke fleet.check` and `invoke plan {host}`. Once it refuses nothing but what the lock lacks,")
    out.note(f"`invoke fleet.lock {host}` writes the host's versions into lock.yml; then `invoke provision {host}`.")
    out.put("schema_version", 1)
    out.put("name", name)
    out.section("connection", 0)
    out.put("address", connection.address, depth=1)
    out.put("port", connection.port, depth=1)
    out.put("user", connection.user, depth=1)
    out.put("host_key", connection.host_key, "pinned; accepted by fingerprint", depth=1)
    if connection.identity_file is not None:
        out.put("identity_file", connection.identity_file, depth=1)
    _gpus(out, facts)
    _cpu(out, facts)
    _memory(out, facts)
    _rest(out, facts, known)
    return "\n".join(out.lines) + "\n", out.missing


def _gpus(out: _Text, facts: Facts) -> None:
    stack = facts.gpu if is_known(facts.gpu) else None
    gpus = stack.gpus if stack is not None and is_known(stack.gpus) else ()
    why = str(facts.gpu) if stack is None else str(stack.gpus) if not is_known(stack.gpus) else "no GPU was seen"

    def common(read: Callable[[Gpu], T | Unknown], what: str) -> T | _Missing:
        return _same([read(gpu) for gpu in gpus], what) if gpus else _Missing(why)

    out.section("gpus", 0)
    out.put("model", common(lambda g: g.name, "name"), depth=1)
    out.put("count", len(gpus) or _Missing(why), depth=1)
    out.put("sms", common(lambda g: g.sms, "SM count"), "from the CUDA driver", depth=1)
    out.put("compute_capability", common(lambda g: g.compute_capability, "compute capability"), depth=1)
    out.put("memory_mib", common(lambda g: g.memory_mib, "memory"), depth=1)
    out.put("power_limit_w", _then(common(lambda g: g.power_limit_default_w, "power limit"), round), "its default", depth=1)
    out.put("sm_clock_mhz", common(lambda g: g.max_sm_clock_mhz, "highest SM clock"), "its highest", depth=1)
    out.put("persistence", True, depth=1)
    out.put("mig", False, depth=1)
    out.put("ecc", common(lambda g: g.ecc_current, "ECC mode"), "as it is now", depth=1)
    out.put("nvlink", _nvlink(gpus) if gpus else _Missing(why), depth=1)
    out.put("fabric", _then(common(lambda g: g.fabric_state, "fabric state"), _fabric), depth=1)
    generation = common(lambda g: g.pcie_generation_max, "PCIe generation")
    width = common(lambda g: g.pcie_width_max, "PCIe width")
    if not isinstance(generation, _Missing) and not isinstance(width, _Missing):
        out.section("pcie", 1)
        out.put("generation", generation, "the highest both ends can", depth=2)
        out.put("width", width, depth=2)
    _driver(out, stack, why)


def _driver(out: _Text, stack: GpuStack | None, why: str) -> None:
    out.section("driver", 1)
    out.put("minimum", _one(stack.driver_version, "driver") if stack is not None else _Missing(why), "as installed", depth=2)
    out.put("manage", "check", "or install, from an apt source of your own", depth=2)
    out.put("fabric_manager", stack is not None and is_known(stack.fabric_manager_version), "seen or not", depth=2)


def _nvlink(gpus: Iterable[Gpu]) -> str | _Missing:
    pairs = [(gpu.index, other, ok) for gpu in gpus for other, ok in gpu.p2p_nvlink.items()]
    unread = next((ok for _, _, ok in pairs if not is_known(ok)), None)
    if unread is not None:
        return _Missing(f"peer access could not be read: {unread}")
    joined = [(a, b) for a, b, ok in pairs if is_known(ok) and ok]
    if not joined:
        return "none"
    if len(joined) == len(pairs):
        return "all_pairs"
    return _Missing(f"only {len(joined)} of {len(pairs)} GPU pairs have NVLink: mend it, or say none")


def _fabric(state: str) -> str | _Missing:
    if state == "not_supported":
        return "absent"
    return "completed"


def _cpu(out: _Text, facts: Facts) -> None:
    out.section("cpu", 0)
    out.put("packages", _one(facts.cpu.packages, "package count"), "sockets", depth=1)
    out.put("physical_cores", _one(facts.cpu.physical_cores, "core count"), "cores, not threads", depth=1)
    count, fast, slow, seen = _fast_cores(facts)
    out.section("fast_cores", 1)
    out.put("count", count, seen, depth=2)
    out.put("mhz", fast, depth=2)
    out.put("slow_mhz", slow, depth=2)
    out.put("evidence", "hint", "or measured, after `invoke probe --measure-cores`", depth=2)
    out.put("os_cores", 2, "slow cores left to the system", depth=1)
    out.put("governor", "performance", depth=1)


def _fast_cores(facts: Facts) -> tuple[Value, Value, Value, str]:
    """(count, fast MHz, slow MHz, where that was seen) over physical cores."""
    cores: dict[tuple[int, ...], LogicalCpu] = {}
    for cpu in facts.cpu.logical:
        if is_known(cpu.siblings):
            cores.setdefault(tuple(cpu.siblings), cpu)
    base = [core.base_khz for core in cores.values() if is_known(core.base_khz)]
    priority = facts.cpu.priority
    if is_known(priority.bucket_cores) and is_known(priority.bucket_mhz) and is_known(facts.cpu.packages):
        slow: Value = min(base) // 1000 if base else _Missing("the base frequency could not be read")
        return priority.bucket_cores * facts.cpu.packages, priority.bucket_mhz, slow, "Priority Core Turbo's highest bucket"
    highest = [core.max_khz for core in cores.values() if is_known(core.max_khz)]
    if len(highest) < len(cores) or not highest:
        gap = _Missing("the cores' highest frequency could not be read; try `invoke probe --measure-cores`")
        return gap, gap, gap, ""
    steps = sorted(set(highest), reverse=True)
    if len(steps) == 2:
        return highest.count(steps[0]), steps[0] // 1000, steps[1] // 1000, "cores that claim the higher frequency"
    what = "all cores claim one frequency" if len(steps) == 1 else f"cores claim {len(steps)} different frequencies"
    gap = _Missing(f"{what}; try `invoke probe --measure-cores`")
    return gap, gap, gap, ""


def _memory(out: _Text, facts: Facts) -> None:
    out.section("memory", 0)
    # A little below what is there: the kernel takes a few MiB more or less with each release.
    total = _then(_one(facts.memory.total_kib, "RAM"), lambda kib: int(kib * 0.99) >> 20)
    out.put("total_gib_min", total, "1% below what was seen", depth=1)
    out.section("hicache", 1)
    out.put("ratio", 2, "times the KV pool of one GPU", depth=2)
    gap = _Missing("GiB of KV pool on one GPU, from the engine's log; or give size_gib in place of both")
    out.put("device_pool_gib", gap, depth=2)
    out.put("write_policy", "write_through_selective", depth=2)
    out.put("reserve_gib", 10, depth=1)
    # Shared memory is RAM: a small machine gets no more of it than half.
    shm = 32 if isinstance(total, _Missing) or total >= 64 else max(1, total // 2)
    out.put("shm_gib", shm, depth=1)
    out.put("swap", False, depth=1)


def _rest(out: _Text, facts: Facts, known: Mapping[str, Sequence[str]]) -> None:
    installed = _installed(facts)
    out.section("packages", 0)
    out.put("hold", installed, "those found of what must not move by itself", depth=1)
    engine = next((name for name in ("docker-ce", "docker.io") if name in installed), None)
    out.section("docker", 0)
    out.put("package", engine or "docker.io", "installed" if engine else "none is installed yet", depth=1)
    out.section("network", 0)
    out.section("engine", 1)
    out.put("ports", 30000, depth=2)
    out.put("from", [], "nobody yet: name the router's network", depth=2)
    for key in ("image", "engine"):
        out.put(key, _Missing(f"one of {', '.join(known[key])}" if known.get(key) else f"no {key} is declared yet: add one"))
