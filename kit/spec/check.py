"""What a declaration must satisfy beyond the type of each value. Pure: typed specs in, findings out."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kit.spec import publickey
from kit.spec.model import FleetFile, HostSpec, Lock, Network, PortAccess
from kit.spec.strict_yaml import Path

RESERVED = ("all", "ungrouped", "localhost")
"""Names that Ansible or ``--host`` give a meaning of their own."""


@dataclass(frozen=True)
class Finding:
    """One thing wrong at ``path`` of a file; the loader adds file and line."""

    path: Path
    code: str
    expected: str
    found: str
    next: str


def port_range(text: str) -> tuple[int, int]:
    """``"30000-30007"`` or ``"30000"`` as (low, high), as written: low may exceed high, and neither is bounded."""
    low, _, high = text.partition("-")
    return int(low), int(high or low)


def check_host(spec: HostSpec, stem: str) -> list[Finding]:
    """All that is inconsistent within one host file. ``stem`` is its file name without ``.yml``."""
    return [*_names(spec, stem), *_connection(spec), *_gpus(spec), *_cpus(spec), *_memory(spec), *_paths(spec), *_ports(spec)]


def _names(spec: HostSpec, stem: str) -> list[Finding]:
    out = []
    if spec.name != stem:
        out.append(
            Finding(("name",), "spec.file_name", f"the file's name, {stem!r}", repr(spec.name), "rename the file or the host")
        )
    if spec.name in RESERVED:
        out.append(Finding(("name",), "spec.reserved_name", "a name of your own", repr(spec.name), "choose another name"))
    if spec.service_user == "root":
        out.append(
            Finding(
                ("service_user",), "spec.service_user", "a user of its own", "'root'", "name an unprivileged user, e.g. b300kit"
            )
        )
    return out


def _connection(spec: HostSpec) -> list[Finding]:
    address, out = spec.connection.address, []
    if wrong := publickey.problem(spec.connection.host_key):
        step = "copy the whole line of /etc/ssh/ssh_host_ed25519_key.pub on the host's console, without its comment"
        out.append(Finding(("connection", "host_key"), "spec.host_key", "a public key: its type and its base64", wrong, step))
    if ":" in address:
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            place, expected = ("connection", "address"), "a name or IP address"
            out.append(Finding(place, "spec.address", expected, repr(address), "put the port under `port`"))
    return out


def _gpus(spec: HostSpec) -> list[Finding]:
    driver = spec.gpus.driver
    if driver.manage == "install" and not driver.packages:
        where: Path = ("gpus", "driver", "packages")
        return [Finding(where, "spec.driver_packages", "packages to install", "none", "name them, or set manage: check")]
    return []


def _cpus(spec: HostSpec) -> list[Finding]:
    cpu, fast, out = spec.cpu, spec.cpu.fast_cores, []
    if fast.count + cpu.os_cores > cpu.physical_cores:
        found = f"{fast.count} fast + {cpu.os_cores} for the OS"
        expected = f"at most {cpu.physical_cores} physical cores in all"
        out.append(Finding(("cpu", "fast_cores", "count"), "spec.cores", expected, found, "lower fast_cores.count or os_cores"))
    if fast.count < spec.gpus.count:
        expected = f"at least {spec.gpus.count}: one for the scheduler of each GPU"
        out.append(Finding(("cpu", "fast_cores", "count"), "spec.cores", expected, str(fast.count), "declare more fast cores"))
    if fast.slow_mhz is not None and not fast.mhz > fast.slow_mhz:
        out.append(
            Finding(
                ("cpu", "fast_cores", "mhz"),
                "spec.core_clock",
                f"more than slow_mhz, {fast.slow_mhz}",
                str(fast.mhz),
                "exchange them, or correct one",
            )
        )
    if cpu.physical_cores < cpu.packages:
        expected = f"at least one core in each of {cpu.packages} packages"
        out.append(
            Finding(("cpu", "physical_cores"), "spec.cores", expected, str(cpu.physical_cores), "count cores, not threads")
        )
    return out


def _memory(spec: HostSpec) -> list[Finding]:
    cache, place = spec.memory.hicache, ("memory", "hicache")
    step = "give either size_gib, or ratio with device_pool_gib"
    by_ratio = cache.ratio is not None or cache.device_pool_gib is not None
    if cache.size_gib is not None and by_ratio:
        return [Finding(place, "spec.hicache", "one way to size the cache", "size_gib and ratio or device_pool_gib", step)]
    if cache.size_gib is None and cache.ratio is None:
        return [Finding(place, "spec.hicache", "a size", "neither size_gib nor ratio", step)]
    if cache.size_gib is None and cache.device_pool_gib is None:
        return [Finding(place, "spec.hicache", "device_pool_gib beside ratio", "ratio alone", step)]
    return []


def _paths(spec: HostSpec) -> list[Finding]:
    data, root = PurePosixPath(spec.data_dir), PurePosixPath(spec.docker.data_root)
    out = []
    if root == data or data in root.parents or root in data.parents:
        expected = f"a folder apart from data_dir, {data}"
        out.append(Finding(("docker", "data_root"), "spec.folders", expected, str(root), "move one of them"))
    for path, place in ((data, ("data_dir",)), (root, ("docker", "data_root"))):
        if len(path.parts) < 3 or path.parts[1] in ("proc", "sys", "dev", "run", "etc", "boot", "tmp"):
            out.append(
                Finding(
                    place, "spec.folders", "a folder of its own that lasts", str(path), "use one below /var/lib, /srv or /opt"
                )
            )
    return out


def _ports(spec: HostSpec) -> list[Finding]:
    out: list[Finding] = []
    ranges: list[tuple[str, int, int]] = [("ssh", spec.connection.port, spec.connection.port)]
    for name, port in spec.network.groups().items():
        place = ("network", name, "ports")
        low, high = port_range(port.ports)
        if not 1 <= low <= high <= 65535:
            out.append(Finding(place, "spec.ports", "low-high within 1-65535", port.ports, "correct the range"))
            continue
        for other, other_low, other_high in ranges:
            if low <= other_high and other_low <= high:
                taken = f"{port.ports}, which {other} uses"
                out.append(Finding(place, "spec.ports_overlap", "ports of its own", taken, "choose other ports"))
        ranges.append((name, low, high))
        everyone = covers_everyone(port)
        if everyone and not port.open_to_everyone:
            out.append(
                Finding(
                    ("network", name, "from"),
                    "spec.open_to_everyone",
                    "the networks of your router or monitoring",
                    everyone,
                    "name them; or, to open it to the world on purpose, add open_to_everyone: true",
                )
            )
    return out


def covers_everyone(port: PortAccess) -> str:
    """The network by which the port is open to every address ("0.0.0.0/1 and 128.0.0.0/1" count too); "" when it is not."""
    four = [n for n in port.from_ if isinstance(n, ipaddress.IPv4Network)]
    six = [n for n in port.from_ if isinstance(n, ipaddress.IPv6Network)]
    merged: list[Network] = list(ipaddress.collapse_addresses(four))
    merged += ipaddress.collapse_addresses(six)
    return next((str(n) for n in merged if n.prefixlen == 0), "")


def packages(spec: HostSpec) -> tuple[str, ...]:
    """What a host holds or installs: each needs a line in the lock."""
    return tuple(dict.fromkeys((*spec.packages.hold, *spec.gpus.driver.packages)))


def check_name(key: str, value: str, known: Sequence[str]) -> list[Finding]:
    """``engine`` and ``image`` name what is declared elsewhere."""
    if value in known:
        return []
    close = difflib.get_close_matches(value, known, n=1)
    step = f"did you mean {close[0]!r}?" if close else f"name one, or add the {key}"
    return [Finding((key,), f"spec.unknown_{key}", f"one of {', '.join(known) or 'none yet'}", repr(value), step)]


def check_lock(lock: Lock, wanted: Mapping[str, Sequence[str]]) -> list[Finding]:
    """Every package of ``wanted`` (host -> its packages) must have a line in the lock, if only ``null``."""
    users: dict[str, list[str]] = {}
    for name, all_ in sorted(wanted.items()):
        for package in all_:
            if package not in lock.packages:
                users.setdefault(package, []).append(name)
    return [
        Finding(
            ("packages",),
            "spec.lock_entry",
            f"a line for {package}",
            f"none, but {', '.join(names)} needs it",
            f"add `{package}: null`, then `invoke fleet.lock --host {names[0]}` once it is installed",
        )
        for package, names in users.items()
    ]


def check_fleet(file: FleetFile, hosts: Mapping[str, HostSpec]) -> list[Finding]:
    """Groups name hosts that exist, and no name is both a host and a group."""
    out: list[Finding] = []
    for group, members in file.groups.items():
        place: Path = ("groups", group)
        if group in hosts or group in RESERVED:
            kind = "a host" if group in hosts else "reserved"
            out.append(Finding(place, "spec.group_name", "a name of its own", f"{group!r} is {kind}", "rename the group"))
        for index, member in enumerate(members):
            if member not in hosts:
                close = difflib.get_close_matches(member, list(hosts), n=1)
                step = f"did you mean {close[0]!r}?" if close else f"add hosts/{member}.yml or take it out"
                out.append(Finding((*place, index), "spec.unknown_host", "a host with a file", repr(member), step))
            elif member in members[:index]:
                out.append(Finding((*place, index), "spec.duplicate_host", "each host once", repr(member), "take one out"))
    return out


def check_addresses(hosts: Mapping[str, HostSpec]) -> dict[str, tuple[str, Finding]]:
    """Hosts that share address and port with an earlier one: host name -> that one, and the finding."""
    seen: dict[tuple[str, int], str] = {}
    out: dict[str, tuple[str, Finding]] = {}
    for name, spec in sorted(hosts.items()):
        place = (spec.connection.address.lower(), spec.connection.port)
        if place in seen:
            found = f"{place[0]}:{place[1]}, which is {seen[place]}"
            step = "correct one of them"
            finding = Finding(("connection", "address"), "spec.duplicate_address", "an address of its own", found, step)
            out[name] = (seen[place], finding)
        seen.setdefault(place, name)
    return out
