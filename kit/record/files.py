"""Writing so that a reader never sees half a file, and a full disk leaves nothing behind."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path

from kit.errors import ExitCode, KitError, failure
from kit.files import PARTIAL, replace, sync_directory, write_all

SUMS = "SHA256SUMS"
_BLOCK = 1 << 20
_SUM_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}) [ *](?P<name>.+)")


def write_atomic(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` or leave it as it was; on the disk when this returns.

    Raises KitError(INTERNAL, ``record.write``) with the free space and what to do; the partial file is gone then.
    """
    try:
        replace(path, content)
    except OSError as error:
        raise write_failed(path, error) from error


def append_line(path: Path, line: bytes, durable: bool = False) -> None:
    """Add one line (without its newline) to a file. A write cut short by a full disk is taken back.

    A killed process loses no line; a power cut may, unless ``durable``.
    Raises KitError(INTERNAL, ``record.write``).
    """
    try:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(handle).st_size
            try:
                write_all(handle, line + b"\n")
                if durable:
                    os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)
                raise
        finally:
            os.close(handle)
    except OSError as error:
        raise write_failed(path, error) from error


def make_directory(path: Path, exist_ok: bool = True) -> None:
    """Make a folder and its parents, on the disk when this returns.

    Raises FileExistsError unless ``exist_ok``; otherwise KitError(INTERNAL, ``record.write``).
    """
    try:
        path.mkdir(parents=True, exist_ok=exist_ok)
        sync_directory(path.parent)
    except FileExistsError:
        if not exist_ok:
            raise
        raise write_failed(path, NotADirectoryError(20, "a file is where a folder must be")) from None
    except OSError as error:
        raise write_failed(path, error) from error


def point(link: Path, target: str) -> None:
    """Make ``link`` a symbolic link to ``target``, replacing an older link in one step.

    Raises KitError(INTERNAL, ``record.write``).
    """
    partial = link.with_name(f"{PARTIAL}{link.name}-{secrets.token_hex(3)}")
    try:
        partial.symlink_to(target)
        try:
            partial.rename(link)
        except OSError:
            partial.unlink()
            raise
    except OSError as error:
        raise write_failed(link, error) from error


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of a file's content. Raises OSError."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def bytes_sha256(content: bytes) -> str:
    """Hex SHA-256."""
    return hashlib.sha256(content).hexdigest()


def sums_text(digests: Mapping[str, str]) -> str:
    """The text that ``sha256sum -c`` reads, sorted by path; names with a newline or backslash escaped as it wants."""
    lines = []
    for name, digest in sorted(digests.items()):
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n")
    return "".join(lines)


def parse_sums(text: str) -> dict[str, str]:
    """Path -> hex digest. Raises ValueError naming the first line that is not one of :func:`sums_text`."""
    digests: dict[str, str] = {}
    # Not splitlines(): a name may hold what that takes for a line end.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), 1):
        match = _SUM_LINE.fullmatch(line)
        if not match:
            raise ValueError(f"line {number} is not '<sha256>  <path>'")
        name = match["name"]
        if match["escaped"]:
            name = re.sub(r"\\([n\\])", lambda m: chr(10) if m[1] == "n" else chr(92), name)
        digests[name] = match["digest"]
    return digests


def record_files(root: Path, derived: frozenset[str]) -> dict[str, Path]:
    """Regular files of a record by relative path, sorted; without the sums, partial and ``derived`` files, and links.

    Raises OSError when the folder cannot be read.
    """
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(root, onerror=_raise):
        folders.sort()
        for name in sorted(names):
            path = Path(folder, name)
            relative = path.relative_to(root).as_posix()
            if name.startswith(PARTIAL) or relative in derived or relative == SUMS:
                continue
            if path.is_file() and not path.is_symlink():
                found[relative] = path
    return dict(sorted(found.items()))


def write_failed(path: Path, error: OSError) -> KitError:
    """The one failure for a record that could not be written."""
    reason = error.strerror or str(error)
    return KitError(
        failure(
            "record.write",
            str(path),
            "a writable record folder with free space",
            f"{reason} (errno {error.errno}); {_free_text(path)}",
            "free space on that file system or set B300KIT_RUNS to another folder, then run the command again; "
            "a host is left as the last recorded stage says",
        ),
        ExitCode.INTERNAL,
    )


def _free_text(path: Path) -> str:
    for folder in path.parents:
        with contextlib.suppress(OSError):
            space = os.statvfs(folder)
            mode = ", mounted read-only" if space.f_flag & os.ST_RDONLY else ""
            return f"{space.f_bavail * space.f_frsize // 1024} KiB and {space.f_favail} inodes free at {folder}{mode}"
    return "free space could not be read"


def _raise(error: OSError) -> None:
    raise error
