"""Is there room for one more simulated host?"""

from __future__ import annotations

from pathlib import Path

import pytest

from kit.errors import ExitCode, KitError
from kit.sim import requirements


def test_inotify_instances_are_counted_whoever_has_them(tmp_path: Path) -> None:
    for process, descriptor, target in (
        ("1", "3", "anon_inode:inotify"),
        ("20", "4", "anon_inode:inotify"),
        ("20", "5", "anon_inode:[eventpoll]"),
        ("self", "3", "anon_inode:inotify"),
    ):
        (tmp_path / process / "fd").mkdir(parents=True, exist_ok=True)
        (tmp_path / process / "fd" / descriptor).symlink_to(target)
    assert requirements.inotify_used(tmp_path) == 2


def test_a_machine_that_would_not_come_up_is_refused_with_the_way_out() -> None:
    requirements.room(128 - requirements.INOTIFY_A_MACHINE, 128)
    with pytest.raises(KitError) as caught:
        requirements.room(129 - requirements.INOTIFY_A_MACHINE, 128)
    assert caught.value.exit_code == ExitCode.USAGE
    (told,) = caught.value.failures
    assert (told.code, told.next.endswith("fs.inotify.max_user_instances=512")) == ("sim.inotify", True)
