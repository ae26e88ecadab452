"""What the demo tells of itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from kit.demo import own_runs
from kit.paths import ROOT
from kit.record.store import Run


def test_the_demo_lists_its_own_runs_and_not_those_of_somebody_beside_it(tmp_path: Path) -> None:
    def made(task: str) -> str:
        with Run.create(task, ["invoke", task], tmp_path) as run:
            run.finish(0, (), {})
        return run.path.name

    earlier = made("plan")
    beside = (
        f"from kit.record.store import Run\nfrom pathlib import Path\nRun.create('drift', ['invoke'], Path({str(tmp_path)!r}))"
    )
    subprocess.run([sys.executable, "-c", beside], check=True, cwd=ROOT)
    mine = made("verify")
    assert [run.id for run in own_runs(tmp_path, {earlier}, {os.getpid()})] == [mine]
