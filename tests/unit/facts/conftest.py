"""Fixtures of this folder."""

from .loopback_sshd import runtime, sshd

__all__ = ["runtime", "sshd"]
