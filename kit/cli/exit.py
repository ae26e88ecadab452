"""One exit status from many results. Pure; the codes are :class:`kit.errors.ExitCode`."""

from __future__ import annotations

from collections.abc import Iterable

# Worst first, for several findings about ONE host: nothing was applied, then what went wrong, then what is unsure.
_PRECEDENCE = (4, 1, 2, 12, 7, 11, 9, 6, 5, 10, 3, 0)
_MIXED = 8
_SIGNAL = 128


def of_findings(codes: Iterable[int]) -> int:
    """The code of one host about which several things were found.

    A refusal outranks all (nothing was applied), failed outranks inconclusive, a pending change comes last.
    """
    found = set(codes)
    signals = [code for code in found if code >= _SIGNAL]
    if signals:
        return max(signals)
    return next((code for code in _PRECEDENCE if code in found), 1 if found else 0)


def of_hosts(codes: Iterable[int]) -> int:
    """The process exit status for several hosts: their common code, 8 when they differ, a signal's code when one ended it."""
    found = set(codes)
    signals = [code for code in found if code >= _SIGNAL]
    if signals:
        return max(signals)
    if len(found) == 1:
        return found.pop()
    return _MIXED if found else 0


def of_outcome(whole: int, hosts: Iterable[int]) -> int:
    """``whole`` is what went wrong beyond any one host; it decides unless it is 0."""
    return whole or of_hosts(hosts)
