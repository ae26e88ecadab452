"""How an assertion of the outside suite fails: with what it is about, what is expected and what was found, as values.

conftest.py puts the three in the JUnit file, where :mod:`kit.record.documents` reads them.
"""

from __future__ import annotations

from testinfra.host import Host


class Broken(Exception):
    """A promise that the host does not keep."""

    def __init__(self, what: str, expected: object, found: object) -> None:
        self.parts = {"what": what, "expected": str(expected), "found": str(found)}
        super().__init__(f"{what}: expected {expected}, found {found}")


def holds(good: bool, what: str, expected: object, found: object) -> None:
    """Raises Broken unless `good`."""
    if not good:
        raise Broken(what, expected, found)


def same(what: str, expected: object, found: object) -> None:
    """Raises Broken unless the two are equal."""
    holds(expected == found, what, expected, found)


def words(host: Host, *argv: str) -> str:
    """Output of a command that must succeed; arguments are quoted by testinfra."""
    done = host.run(" ".join(["%s"] * len(argv)), *argv)
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()
    # nft says what is wrong first and then draws where; most others say it last.
    why = [line for line in said if line.startswith("Error")][:1] or said[-1:]
    holds(done.rc == 0, f"`{' '.join(argv)[:120]}`", "exit 0", ": ".join([f"exit {done.rc}", *why]))
    return str(done.stdout).rstrip("\r\n")


def shell(host: Host, script: str, *arguments: str) -> str:
    """Output of a shell script that must succeed."""
    return words(host, "sh", "-c", script, "sh", *arguments)
