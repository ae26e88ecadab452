"""What applying a plan did: values for progress, the record and the exit code."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from kit.errors import ExitCode, Failure


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ApplyEvent(_Frozen):
    """One Ansible task on one host has ended."""

    host: str
    role: str
    """Empty for a task of the playbook itself."""
    task: str
    status: str
    """``ok``, ``changed``, ``skipped``, ``failed`` or ``unreachable``."""
    seconds: float

    def line(self) -> str:
        """For a progress log."""
        name = f"{self.role}: {self.task}" if self.role else self.task
        return f"{self.status:<11} {name} ({self.seconds:.1f} s)"


class ApplyResult(_Frozen):
    """One host's recap."""

    host: str
    ok: int = 0
    changed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    """Of this host's tasks, summed."""
    events: tuple[ApplyEvent, ...] = ()
    failures: tuple[Failure, ...] = ()
    exit_code: int = ExitCode.OK
    """128+N when a signal ended the run before this host was done."""
