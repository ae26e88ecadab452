"""Limits, /dev/shm, huge pages, swap, transparent huge pages, swappiness: each file with a step on what is in effect."""

from __future__ import annotations

from kit.facts.base import KIB_PER_GIB
from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import boot_unit, render
from kit.plan.model import Action, ManagedFile, Step
from kit.plan.steps import change, file_step, keep, refuse
from kit.plan.where import FSTAB, LIMITS, MEMORY_UNIT, SYSCTL
from kit.spec.model import HostSpec, Lock

ROLE = "memory"
SYSCTLS = ("vm.swappiness",)
RESTART = {"units_restart": [MEMORY_UNIT]}


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Files, the boot unit that sets what a boot loses, then each value as it is now."""
    sysctl = _sysctl_file(spec, facts)
    return [
        _limits_file(spec, facts),
        *_boot_unit(spec, facts),
        _shm(spec, facts),
        _huge_pages(spec, facts),
        _thp(spec, facts),
        sysctl,
        _swappiness(spec, facts, sysctl),
        *_swap(spec, facts),
    ]


def _limits_file(spec: HostSpec, facts: Facts) -> Step:
    """Of logins, read at each login. What containers get is the container engine's area."""
    want = spec.memory
    memlock = "unlimited" if want.memlock_kib == "unlimited" else str(want.memlock_kib)
    file = render.file(LIMITS, "limits.conf.j2", user=spec.service_user, memlock=memlock, nofile=want.nofile)
    return file_step("memory.limits_file", file, facts, ROLE, why="limits of logins, read at each login")


def _boot_unit(spec: HostSpec, facts: Facts) -> list[Step]:
    want = spec.memory
    settings = {
        "shm_mib": round(want.shm_gib * 1024),
        "huge_pages": {"size_kib": want.huge_pages.size_kib, "count": want.huge_pages.count},
        "transparent_huge_pages": want.transparent_huge_pages,
    }
    after = "local-fs.target systemd-sysctl.service"
    return boot_unit.steps(ROLE, settings, facts, sets="shared memory size, huge pages and THP", after=after)


def _shm(spec: HostSpec, facts: Facts) -> Step:
    now = facts.memory.shm_kib
    least = round(spec.memory.shm_gib * 1024) * 1024
    expected = f"at least {spec.memory.shm_gib:g} GiB"
    if not is_known(now):
        return refuse(
            "memory.shm",
            f"the shared memory file system is {show(now)}",
            expected=expected,
            found=now,
            next="mount a tmpfs on /dev/shm",
        )
    found = f"{now / KIB_PER_GIB:.2f} GiB"
    if now >= least:
        return keep("memory.shm", "the shared memory file system is large enough", expected=expected, found=found)
    return change(
        "memory.shm",
        f"the shared memory file system has {found}: NCCL fails in a small one",
        ROLE,
        expected=expected,
        found=found,
        arguments=RESTART,
    )


def _huge_pages(spec: HostSpec, facts: Facts) -> Step:
    """Pages of 2 MiB can be reserved now; 1 GiB pages are tried too, and the unit fails where memory is fragmented."""
    want, now = spec.memory.huge_pages, facts.memory
    expected = f"{want.count} of {want.size_kib} KiB"
    if not is_known(now.huge_pages_total) or not is_known(now.huge_page_kib):
        return refuse(
            "memory.huge_pages",
            "huge pages could not be read",
            expected=expected,
            found="not verified",
            next="look at /proc/meminfo",
        )
    found = f"{now.huge_pages_total} of {now.huge_page_kib} KiB"
    if now.huge_pages_total == want.count and (want.count == 0 or now.huge_page_kib == want.size_kib):
        return keep("memory.huge_pages", "reserved huge pages are as declared", expected=expected, found=found)
    if now.huge_page_kib != want.size_kib:
        return refuse(
            "memory.huge_pages",
            f"the kernel's default huge page is {now.huge_page_kib} KiB, declared are {want.size_kib} KiB",
            expected=expected,
            found=found,
            next=f"boot with default_hugepagesz={'1G' if want.size_kib > 2048 else '2M'}, or declare the other size",
        )
    return change(
        "memory.huge_pages", f"{found} are reserved", ROLE, expected=expected, found=found, disruptive=True, arguments=RESTART
    )


def _thp(spec: HostSpec, facts: Facts) -> Step:
    want, now = spec.memory.transparent_huge_pages, facts.memory.thp
    if not is_known(now):
        return refuse(
            "memory.thp", f"transparent huge pages are {show(now)}", expected=want, found=now, next="look at /sys/kernel/mm"
        )
    if now == want:
        return keep("memory.thp", "transparent huge pages are as declared", expected=want, found=now)
    return change("memory.thp", f"transparent huge pages are set to {now}", ROLE, expected=want, found=now, arguments=RESTART)


def _sysctl_file(spec: HostSpec, facts: Facts) -> Step:
    file = render.file(SYSCTL, "sysctl.conf.j2", swappiness=spec.memory.swappiness)
    return file_step("memory.sysctl_file", file, facts, ROLE, why="kernel settings, read at each boot")


def _swappiness(spec: HostSpec, facts: Facts, file: Step) -> Step:
    want = str(spec.memory.swappiness)
    now = facts.sysctls.get(SYSCTLS[0], Unknown(unknown="not read"))
    if not is_known(now):
        return refuse(
            "memory.swappiness", f"{SYSCTLS[0]} is {show(now)}", expected=want, found=now, next="look at /proc/sys/vm/swappiness"
        )
    if now == want:
        return keep("memory.swappiness", f"{SYSCTLS[0]} is as declared", expected=want, found=now)
    after = " once its file is written" if file.action is Action.CHANGE else ""
    return change(
        "memory.swappiness", f"{SYSCTLS[0]} is set{after}", ROLE, expected=want, found=now, arguments={"sysctl_files": [SYSCTL]}
    )


def _swap(spec: HostSpec, facts: Facts) -> list[Step]:
    """Pages in use now, then what the next boot would bring back."""
    if spec.memory.swap:
        return [keep(id, "swap is allowed", found="not judged") for id in ("memory.swap", "memory.swap_at_boot")]
    now = facts.memory.swap_total_kib
    if not is_known(now):
        in_use = refuse("memory.swap", f"swap is {show(now)}", expected="off", found=now, next="look at /proc/swaps")
    elif now == 0:
        in_use = keep("memory.swap", "swap is off", expected="off", found="off")
    else:
        found = f"{now / KIB_PER_GIB:.2f} GiB on"
        in_use = change(
            "memory.swap", f"{found}", ROLE, expected="off", found=found, disruptive=True, arguments={"swap_off": True}
        )
    return [in_use, _swap_at_boot(facts)]


def _swap_at_boot(facts: Facts) -> Step:
    id = "memory.swap_at_boot"
    listed, file = facts.memory.swap_in_fstab, facts.files.get(FSTAB)
    if is_known(listed) and not listed:
        return keep(id, f"{FSTAB} mounts no swap", expected="none", found="none")
    if not is_known(listed) or file is None or not is_known(file.content):
        why = show(listed) if not is_known(listed) else "its text could not be read"
        return refuse(
            id, f"{FSTAB}: {why}", expected="none", found=why, next=f"let the kit read {FSTAB}, or take its swap line out by hand"
        )
    mode = file.mode if is_known(file.mode) else "0644"
    wanted = ManagedFile(path=FSTAB, content=without_swap(file.content), mode=mode.rjust(4, "0"))
    return file_step(id, wanted, facts, ROLE, why="its swap lines become comments; the old file is kept beside it")


def without_swap(fstab: str) -> str:
    """The same text with each swap entry made a comment."""
    lines = []
    for line in fstab.splitlines(keepends=True):
        fields = line.split()
        is_swap = len(fields) >= 3 and not line.lstrip().startswith("#") and fields[2] == "swap"
        lines.append(f"# b300kit: swap is declared off: {line}" if is_swap else line)
    return "".join(lines)
