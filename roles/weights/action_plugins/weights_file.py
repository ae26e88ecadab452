"""Sends a file in slices: one slice of it is copied at a time, so neither side needs room for the file twice."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

SLICE_BYTES = 256 * 1024 * 1024


class ActionModule(ActionBase):
    """The control machine's part of the module of the same name."""

    _requires_connection = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask how much is there, then send slice by slice; the module's last answer."""
        super().run(tmp, task_vars)
        options = dict(self._task.args)
        size = int(options["bytes"])
        answer = self._execute_module(module_name="weights_file", module_args=options, task_vars=task_vars)
        changed = False
        with Path(options["src"]).open("rb") as source:
            while not answer.get("failed") and answer["have"] < size:
                source.seek(answer["have"])
                with tempfile.NamedTemporaryFile() as piece:
                    piece.write(source.read(min(SLICE_BYTES, size - answer["have"])))
                    piece.flush()
                    if Path(piece.name).stat().st_size == 0:
                        return {"failed": True, "msg": f"{options['src']} is shorter than {size} bytes"}
                    target = self._connection._shell.join_path(self._make_tmp_path(), "slice")
                    self._transfer_file(piece.name, target)
                answer = self._execute_module(
                    module_name="weights_file", module_args={**options, "slice": target}, task_vars=task_vars
                )
                self._remove_tmp_path(self._connection._shell.tmpdir, force=True)
                changed = True
        return {**answer, "changed": changed or bool(answer.get("changed"))}
