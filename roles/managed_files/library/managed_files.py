#!/usr/bin/python3
"""Writes whole files on a host in one call: one connection for a role's files instead of several for each."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shlex
import stat
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: managed_files
short_description: Write whole files, each in one piece
description:
  - For each file in turn a new one is written beside it, checked, brought to disk and renamed over it. So a file is the old one
    or the new one at any moment, also after a full disk, a power cut or a kill.
  - What was there is kept beside it as C(NAME.PID.DATE~).
  - Missing folders are made with mode 0755; those that are there stay as they are.
  - A symbolic link, in the path or at its end, is refused. It would put the file elsewhere.
  - The first file that fails ends the call. Those before it are written, and named in RV(files).
options:
  files:
    description: The files, written in this order.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Absolute path on the host.
        type: str
        required: true
      content:
        description: The whole text.
        type: str
        required: true
      mode:
        description: Octal mode, in quotes.
        type: str
        required: true
      owner:
        description: User name.
        type: str
        required: true
      group:
        description: Group name.
        type: str
        required: true
      check_with:
        description: Command that must accept the new file before it takes its place. V(%s) in it is the file's temporary name.
        type: str
attributes:
  check_mode:
    description: Says what would change and writes nothing; O(files[].check_with) is not run.
    support: full
  diff_mode:
    description: The text before and after.
    support: full
author: b300kit
"""

EXAMPLES = r"""
- name: Write a file whole
  managed_files:
    files:
      - path: /etc/b300kit/cpu.json
        content: "{}\n"
        mode: "0644"
        owner: root
        group: root
"""

RETURN = r"""
files:
  description: Those that were changed.
  returned: always
  type: list
  elements: dict
  contains:
    path:
      description: Where it is.
      type: str
    backup:
      description: Where the old one is kept; empty when there was none, or when only mode or owner changed.
      type: str
"""

FOLDER_MODE = 0o755
CHECK_TIMEOUT_S = 60
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
OPTIONS = {
    "path": {"type": "str", "required": True},
    "content": {"type": "str", "required": True},
    "mode": {"type": "str", "required": True},
    "owner": {"type": "str", "required": True},
    "group": {"type": "str", "required": True},
    "check_with": {"type": "str"},
}


class Refused(Exception):
    """A file cannot be written; the text names its path."""


class Wanted(NamedTuple):
    """A file as it is to be."""

    path: str
    data: bytes
    mode: int
    uid: int
    gid: int
    check_with: str | None

    @property
    def name(self) -> str:
        """Its name within its folder."""
        return Path(self.path).name

    @property
    def temporary(self) -> str:
        """Name of the new file before it takes its place. Hidden, so that nothing that reads a ``.d`` folder takes it."""
        return f".{self.name}.b300kit-new"


class Present(NamedTuple):
    """A file as it is."""

    data: bytes
    mode: int
    uid: int
    gid: int


def wanted(entry: dict[str, Any]) -> Wanted:
    """The typed entry. Refused for a path, mode, user or group that means nothing."""
    path = entry["path"]
    if not path.startswith("/") or os.path.normpath(path) != path or path == "/":
        raise Refused(f"{path}: not an absolute path without . and ..")
    try:
        mode = int(entry["mode"], 8)
    except ValueError:
        raise Refused(f"{path}: mode {entry['mode']!r} is not octal") from None
    try:
        uid, gid = pwd.getpwnam(entry["owner"]).pw_uid, grp.getgrnam(entry["group"]).gr_gid
    except KeyError as error:
        raise Refused(f"{path}: {error.args[0]}") from None
    return Wanted(path, entry["content"].encode(), mode, uid, gid, entry.get("check_with"))


def open_folder(path: str, make: bool) -> int | None:
    """Descriptor of a folder, reached without following any link. None when it is not there and must not be made."""
    here = os.open("/", FOLDER)
    way = ""
    for part in filter(None, path.split("/")):
        way += "/" + part
        try:
            there = enter(here, part, make)
        except OSError as error:
            with contextlib.suppress(OSError):
                raise Refused(f"{way}: a symbolic link to {os.readlink(part, dir_fd=here)}; not followed") from None
            raise Refused(f"{way}: {error.strerror}") from None
        finally:
            os.close(here)
        if there is None:
            return None
        here = there
    return here


def enter(here: int, part: str, make: bool) -> int | None:
    """Descriptor of the folder ``part`` of ``here``, made when it is missing."""
    try:
        return os.open(part, FOLDER, dir_fd=here)
    except FileNotFoundError:
        if not make:
            return None
    os.mkdir(part, FOLDER_MODE, dir_fd=here)
    there = os.open(part, FOLDER, dir_fd=here)
    os.fchmod(there, FOLDER_MODE)  # whatever the umask
    return there


def read(folder: int, want: Wanted) -> Present | None:
    """The file as it is; None when it is not there. Refused when it is not a regular file."""
    try:
        descriptor = os.open(want.name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        with contextlib.suppress(OSError):
            raise Refused(f"{want.path}: a symbolic link to {os.readlink(want.name, dir_fd=folder)}; not followed") from None
        raise Refused(f"{want.path}: {error.strerror}") from None
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode):
        os.close(descriptor)
        raise Refused(f"{want.path}: not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        return Present(file.read(), stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid)


def as_wanted(now: Present | None, want: Wanted) -> bool:
    """Whether nothing is to be done."""
    return now is not None and now == (want.data, want.mode, want.uid, want.gid)


def replace(folder: int, want: Wanted, now: Present | None) -> str:
    """Put the new file in place; the name under which the old one is kept. OSError and Refused leave the old file whole."""
    backup = ""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(want.temporary, dir_fd=folder)  # of a run that was killed
    try:
        write(folder, want)
        if want.check_with is not None:
            check(want, str(Path(want.path).parent / want.temporary))
        if now is not None and now.data != want.data:
            backup = f"{want.name}.{os.getpid()}.{time.strftime('%Y-%m-%d@%H:%M:%S')}~"
            # A second name for the old file: it needs no room, and there is no moment without the file.
            os.link(want.name, backup, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        os.rename(want.temporary, want.name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(want.temporary, dir_fd=folder)
        raise
    os.fsync(folder)
    return str(Path(want.path).parent / backup) if backup else ""


def write(folder: int, want: Wanted) -> None:
    """The temporary file, complete and on disk. Nobody else may read it before it has its owner and mode."""
    descriptor = os.open(want.temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as file:
        os.fchown(descriptor, want.uid, want.gid)
        os.fchmod(descriptor, want.mode)
        file.write(want.data)
        file.flush()
        os.fsync(descriptor)


def check(want: Wanted, temporary: str) -> None:
    """Refused unless the command accepts the new file."""
    argv = [word.replace("%s", temporary) for word in shlex.split(want.check_with or "")]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=CHECK_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Refused(f"{want.path}: failed to validate: {error}") from None
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no message").replace(temporary, want.path)
        raise Refused(f"{want.path}: failed to validate: {argv[0]} ended with {done.returncode}: {said}")


def difference(now: Present | None, want: Wanted) -> dict[str, str]:
    """Before and after, as Ansible shows them."""
    before = now.data.decode(errors="replace") if now is not None else ""
    return {"before_header": want.path, "after_header": want.path, "before": before, "after": want.data.decode()}


def main() -> None:
    """Every file in turn."""
    files = {"type": "list", "elements": "dict", "required": True, "options": OPTIONS}
    module = AnsibleModule(argument_spec={"files": files}, supports_check_mode=True)
    changed: list[dict[str, str]] = []
    diff: list[dict[str, str]] = []
    try:
        # All of them first: a mistake in the last one is found before the first one is written.
        for want in [wanted(entry) for entry in module.params["files"]]:
            bring(want, module.check_mode, changed, diff)
    except Refused as refused:
        module.fail_json(msg=str(refused), changed=bool(changed), files=changed)
    module.exit_json(changed=bool(changed), files=changed, **({"diff": diff} if module._diff else {}))


def bring(want: Wanted, dry: bool, changed: list[dict[str, str]], diff: list[dict[str, str]]) -> None:
    """One file; adds to ``changed`` and ``diff``. Refused with its path when it cannot be written."""
    folder = open_folder(str(Path(want.path).parent), make=not dry)
    try:
        now = read(folder, want) if folder is not None else None
        if as_wanted(now, want):
            return
        backup = "" if dry or folder is None else replace(folder, want, now)
    except OSError as error:
        raise Refused(f"{want.path}: {error.strerror}") from None
    finally:
        if folder is not None:
            os.close(folder)
    diff.append(difference(now, want))
    changed.append({"path": want.path, "backup": backup})


if __name__ == "__main__":
    main()
