"""The machine itself: identity, kernel, clock, users, files, sysctls."""

from __future__ import annotations

import ctypes
import grp
import hashlib
import os
import pwd
import re
import stat

from kit.facts.host.read import Json, Unreadable, fact, find_program, output, run, text, unknown

MAX_HASHED = 64 * 1024 * 1024
MAX_CONTENT = 64 * 1024
_CLOCK_FAULT_US = 16_000_000
"""The kernel's maxerror grows to this when nothing disciplines the clock; systemd's NTPSynchronized uses the same test."""


def os_release() -> dict[str, str]:
    """The fields of os-release."""
    fields: dict[str, str] = {}
    for line in text("/etc/os-release").splitlines():
        name, equals, value = line.partition("=")
        if equals:
            fields[name] = value.strip().strip("\"'")
    return fields


def boot_id() -> str:
    """The kernel's boot id; systemd-nspawn puts a new one there at each start of a container."""
    return text("/proc/sys/kernel/random/boot_id")


def kernel_order(release: str) -> tuple[tuple[int, str], ...]:
    """Sorts kernel releases by their numbers."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"\d+|[^\d.-]+", release))


def next_kernel() -> str:
    """Newest kernel in /boot, which is what GRUB boots by default."""
    found = [name[len("vmlinuz-") :] for name in os.listdir("/boot") if name.startswith("vmlinuz-")]
    if not found:
        raise Unreadable("no kernel in /boot")
    return max(found, key=kernel_order)


def dkms_state(kernel: Json) -> str:
    """State of the nvidia DKMS module for that kernel."""
    if find_program("dkms") is None:
        return "not_used"
    lines = [line for line in output(["dkms", "status"], 10).splitlines() if line.startswith("nvidia")]
    if not lines:
        return "not_used"
    if not isinstance(kernel, str):
        raise Unreadable(kernel["unknown"])
    for line in lines:
        names, _, state = line.partition(":")
        if kernel in [name.strip() for name in names.split(",")] and state.strip().startswith("installed"):
            return "installed"
    return "missing"


def clock_synchronized() -> bool:
    """Whether the kernel's clock is disciplined, by ``adjtimex`` in its read-only mode."""
    library = ctypes.CDLL(None, use_errno=True)
    # struct timex: unsigned modes, then longs; the third of those is maxerror, in microseconds.
    buffer = (ctypes.c_long * 64)()
    if library.adjtimex(ctypes.byref(buffer)) < 0:
        code = ctypes.get_errno()
        if os.path.exists("/run/systemd/timesync/synchronized"):
            return True
        raise Unreadable(f"adjtimex: {os.strerror(code)}")
    return int(buffer[3]) < _CLOCK_FAULT_US


def virtualization() -> str:
    """``none``, ``kvm``, ``systemd-nspawn`` and so on. Status 1 with the word ``none`` is an answer."""
    status, out, err = run(["systemd-detect-virt"])
    if out.strip():
        return out.strip()
    raise Unreadable(f"systemd-detect-virt ended with status {status}: {err.strip()[-100:]}")


def user(name: str) -> str:
    """``uid:gid:groups:home:shell``."""
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        raise Unreadable("no such user") from None
    groups: list[str] = []
    for gid in os.getgrouplist(name, entry.pw_gid):
        try:
            groups.append(grp.getgrgid(gid).gr_name)
        except KeyError:
            groups.append(str(gid))
    return f"{entry.pw_uid}:{entry.pw_gid}:{','.join(sorted(groups))}:{entry.pw_dir}:{entry.pw_shell}"


def sysctl(name: str) -> str:
    """One value below /proc/sys."""
    if not re.match(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+\Z", name):
        raise Unreadable(f"not a name of a sysctl: {name[:60]!r}")
    return text("/proc/sys/" + name.replace(".", "/"))


def file(path: str) -> Json:
    """A file as it is on the host. The text only when small, and when everyone may read it: else it may hold a secret."""
    names = ("sha256", "mode", "owner", "group", "content")
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return dict({name: unknown("no such file") for name in names}, exists=False)
    except OSError as error:
        # Not being allowed to look is not the same as not being there.
        return dict({name: unknown(error.strerror or "cannot be read") for name in names}, exists=os.path.lexists(path))
    regular = stat.S_ISREG(found.st_mode)

    def data() -> bytes:
        if not regular:
            raise Unreadable("not a regular file")
        if found.st_size > MAX_HASHED:
            raise Unreadable(f"larger than {MAX_HASHED} bytes")
        with open(path, "rb") as stream:
            return stream.read(MAX_HASHED)

    raw = fact(data)

    def content() -> str:
        if isinstance(raw, dict):
            raise Unreadable(raw["unknown"])
        if not found.st_mode & stat.S_IROTH:
            raise Unreadable("not readable by everyone: kept out of the record")
        if len(raw) > MAX_CONTENT:
            raise Unreadable(f"larger than {MAX_CONTENT} bytes")
        return str(raw.decode("utf-8"))

    return {
        "exists": True,
        "sha256": raw if isinstance(raw, dict) else hashlib.sha256(raw).hexdigest(),
        "mode": f"{stat.S_IMODE(found.st_mode):04o}",
        "owner": fact(lambda: _name(lambda: pwd.getpwuid(found.st_uid).pw_name, found.st_uid)),
        "group": fact(lambda: _name(lambda: grp.getgrgid(found.st_gid).gr_name, found.st_gid)),
        "content": fact(content),
    }


def _name(look_up: Json, number: int) -> str:
    try:
        return str(look_up())
    except KeyError:
        return str(number)


def read(python: str) -> Json:
    """The ``host`` part of the facts."""
    release = fact(os_release)
    kernel = fact(next_kernel)

    def field(name: str) -> Json:
        return fact(lambda: release[name])

    return {
        "hostname": fact(lambda: os.uname().nodename),
        "os_id": field("ID"),
        "os_version": field("VERSION_ID"),
        "kernel": fact(lambda: os.uname().release),
        "next_kernel": kernel,
        "next_kernel_dkms": fact(lambda: dkms_state(kernel)),
        "boot_id": boot_id(),
        "uptime_s": fact(lambda: float(text("/proc/uptime").split()[0])),
        "python": python,
        "virtualization": fact(virtualization),
        "clock_synchronized": fact(clock_synchronized),
        "reboot_required": fact(lambda: os.path.exists("/run/reboot-required")),
    }
