"""Facts as rows for people. It shows and does not judge: the plan judges. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kit.facts.model import Cpu, Docker, Facts, LogicalCpu
from kit.facts.unknown import is_known
from kit.report import row as rows
from kit.report.burn_in_rows import area as burn_in_area
from kit.report.clean import one_line
from kit.report.gpu_rows import gpu_areas
from kit.report.row import Area, Row, gib, row
from kit.report.words import moment, ranges, seconds
from kit.spec.model import HostSpec


def areas(facts: Facts, spec: HostSpec | None = None) -> tuple[Area, ...]:
    """Everything read on the host, in the order an operator asks for it."""
    return (
        _host(facts, spec),
        *gpu_areas(facts, spec),
        _cpus(facts.cpu, spec),
        _memory(facts, spec),
        _node(facts, spec),
        burn_in_area(facts, spec),
        Area("Disks", tuple(_disk_rows(facts)), long=True),
        Area("Packages", tuple(_package_rows(facts)), long=True),
        Area("Services", tuple(_service_rows(facts)), long=True),
        Area("Kernel settings", tuple(row(name, value) for name, value in sorted(facts.sysctls.items())), long=True),
        Area("Files", tuple(_file_rows(facts)), long=True),
    )


def _host(facts: Facts, spec: HostSpec | None) -> Area:
    host = facts.host
    system = Row(
        "Operating system",
        one_line(f"{host.os_id} {host.os_version}"),
        verified=is_known(host.os_id) and is_known(host.os_version),
    )
    return Area(
        "Host",
        (
            row("Host name", host.hostname, spec.name if spec else ""),
            system,
            row("Kernel", host.kernel),
            row("Kernel after a reboot", host.next_kernel),
            row("NVIDIA module for it", host.next_kernel_dkms),
            row("Reboot asked for", host.reboot_required),
            row("Up for", host.uptime_s, text=seconds),
            row("Boot", host.boot_id),
            row("Virtualization", host.virtualization),
            row("Python", host.python),
            row("Read", facts.collected_at, text=lambda at: f"{moment(at)}, in {seconds(facts.seconds)}"),
            row("Read as root", facts.privileged),
            *(Row("Note", one_line(note)) for note in facts.notes),
        ),
    )


def _cpus(cpu: Cpu, spec: HostSpec | None) -> Area:
    want = spec.cpu if spec else None

    def each(label: str, read: Callable[[LogicalCpu], Any], declared: object = "", text: Callable[[Any], object] = str) -> Row:
        return rows.each(label, [(one.cpu, read(one)) for one in cpu.logical], declared, "CPU", "CPUs", text)

    def mhz(khz: int) -> str:
        return f"{khz // 1000} MHz"

    fast = f"{want.fast_cores.count} cores at {want.fast_cores.mhz} MHz" if want else ""
    return Area(
        "Processors",
        (
            row("Model", cpu.model),
            row("Packages", cpu.packages, want.packages if want else ""),
            row("Physical cores", cpu.physical_cores, want.physical_cores if want else ""),
            row("Two threads a core", cpu.smt),
            row("NUMA nodes", cpu.nodes, text=ranges),
            each("Governor", lambda c: c.governor, want.governor if want else ""),
            each("Frequency driver", lambda c: c.driver),
            each("Base frequency", lambda c: c.base_khz, text=mhz),
            each("Highest frequency claimed", lambda c: c.max_khz, fast, mhz),
            row("Boost", cpu.boost, text=lambda v: "on" if v else "off"),
            row("Priority Core Turbo supported", cpu.priority.supported),
            row("Priority Core Turbo on", cpu.priority.enabled, want.fast_cores.priority_core_turbo if want else ""),
            row("Priority CPUs (CLOS 0)", cpu.priority.priority_cpus, text=ranges),
            row(
                "Cores measured",
                cpu.measured,
                text=lambda m: f"{len(m.cores)} cores, {'in MHz' if m.unit == 'mhz' else 'relative to the median core'}",
            ),
            row("irqbalance runs", cpu.irqbalance_active),
            row("CPUs closed to irqbalance", cpu.irqbalance_banned, text=ranges),
            row("CPUs that get interrupts", cpu.irq_cpus, text=ranges),
            row("CPUs for new interrupts", cpu.default_irq_cpus, text=ranges),
            row(
                "Deepest C-state exit of any CPU",
                cpu.cstate_latency_us,
                f"at most {want.max_cstate_latency_us} µs on the fast cores"
                if want and want.max_cstate_latency_us is not None
                else "",
                lambda v: f"{v} µs",
            ),
            row("Kernel command line", cpu.kernel_command_line),
        ),
    )


def _unit(value: object, unit: str) -> str:
    """A number with its unit; a word alone."""
    return f"{value}{unit}" if isinstance(value, int) else str(value)


def _memory(facts: Facts, spec: HostSpec | None) -> Area:
    memory, limits = facts.memory, facts.limits
    want = spec.memory if spec else None

    def limit(value: int, unit: str = "") -> str:
        return "unlimited" if value == -1 else f"{value}{unit}"

    def pages(count: int) -> str:
        return f"{count} of {memory.huge_page_kib} KiB" if is_known(memory.huge_page_kib) else str(count)

    return Area(
        "Memory and limits",
        (
            row("Memory", memory.total_kib, f"at least {want.total_gib_min:g} GiB" if want else "", gib),
            row("Available", memory.available_kib, text=gib),
            row("Limit by cgroup", memory.cgroup_limit_kib, text=gib)
            if not (is_known(memory.cgroup_limited) and not memory.cgroup_limited)
            else Row("Limit by cgroup", "none"),
            *(row(f"NUMA node {node}", total, text=gib) for node, total in sorted(memory.node_total_kib.items())),
            row("Huge pages", memory.huge_pages_total, want.huge_pages.count if want else "", pages),
            row("Transparent huge pages", memory.thp, want.transparent_huge_pages if want else ""),
            row("Swap", memory.swap_total_kib, want.swap if want else "", lambda v: gib(v) if v else "no"),
            row("Shared memory (/dev/shm)", memory.shm_kib, f"{want.shm_gib:g} GiB" if want else "", gib),
            row(
                f"Locked memory of {limits.process}",
                limits.memlock_kib,
                _unit(want.memlock_kib, " KiB") if want else "",
                lambda v: limit(v, " KiB"),
            ),
            row(f"Open files of {limits.process}", limits.nofile, want.nofile if want else "", limit),
        ),
    )


def _node(facts: Facts, spec: HostSpec | None) -> Area:
    docker: Docker = facts.docker
    want = spec.docker if spec else None
    return Area(
        "Containers, firewall, membership",
        (
            row("Container engine", docker.version),
            row("Live restore", docker.live_restore, want.live_restore if want else ""),
            row("Log driver", docker.log_driver),
            row("Data folder", docker.data_root, want.data_root if want else ""),
            row("CDI devices", docker.cdi_devices, text=lambda v: ", ".join(v) or "none"),
            row("Containers running", docker.running_containers),
            row("Firewall table", facts.firewall.table_text, text=lambda v: f"{len(v.splitlines())} lines" if v else "not there"),
            row("Listening", facts.firewall.listening_tcp, text=lambda v: ", ".join(v) or "nothing"),
            row("Joined to a router", facts.membership.joined),
            row("Engine runs", facts.membership.engine_active),
        ),
    )


def _disk_rows(facts: Facts) -> list[Row]:
    made = []
    for disk in facts.disks:
        parts = (disk.filesystem, disk.total_kib, disk.free_kib)
        sizes = [gib(kib) if is_known(kib) else one_line(kib) for kib in (disk.free_kib, disk.total_kib)]
        mode = ", read-only" if is_known(disk.read_only) and disk.read_only else ""
        text = f"{sizes[0]} free of {sizes[1]}, {disk.filesystem}{mode}"
        made.append(Row(one_line(disk.path), one_line(text), verified=all(is_known(part) for part in parts)))
    return made


def _package_rows(facts: Facts) -> list[Row]:
    return [
        row(one_line(name), package, text=lambda p: f"{p.version}{', held' if p.held else ', not held'}")
        for name, package in sorted(facts.packages.items())
    ]


def _service_rows(facts: Facts) -> list[Row]:
    return [
        Row(
            one_line(name),
            one_line(f"{unit.active}, {unit.enabled} at boot")
            + (", file newer than what runs" if is_known(unit.needs_daemon_reload) and unit.needs_daemon_reload else ""),
            verified=is_known(unit.active) and is_known(unit.enabled),
        )
        for name, unit in sorted(facts.services.items())
    ]


def _file_rows(facts: Facts) -> list[Row]:
    made = []
    for path, file in sorted(facts.files.items()):
        if not file.exists:
            made.append(Row(one_line(path), "not there"))
            continue
        digest = file.sha256[:12] if is_known(file.sha256) else str(file.sha256)
        text = f"{digest} {file.mode} {file.owner}:{file.group}"
        made.append(Row(one_line(path), one_line(text), verified=is_known(file.sha256)))
    return made
