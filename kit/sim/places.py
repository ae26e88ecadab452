"""Where simulated hosts live on the control machine, and what they are called in the kernel."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from kit.paths import cache_dir

BRIDGE = "b300kit0"
SUBNET = "169.254.77.0/24"
"""Link-local: a router never forwards it, so nothing a simulated host sends can leave the machine."""
FIRST_INDEX, LAST_INDEX = 10, 250
MACHINE_LOCK = Path("/run/lock/b300kit-sim.lock")
"""Guards what is machine-wide (bridge, addresses), also between checkouts with caches of their own."""


@dataclass(frozen=True)
class Places:
    """Paths under one cache folder."""

    cache: Path

    @classmethod
    def here(cls) -> Places:
        """Under ``kit.paths.cache_dir()``."""
        return cls(cache_dir())

    @property
    def sim(self) -> Path:
        """All but the fleet."""
        return self.cache / "sim"

    @property
    def fleet(self) -> Path:
        """The fleet folder that makes the hosts usable with ``--host``."""
        return self.cache / "fleet"

    @property
    def layers(self) -> Path:
        """Unpacked, read-only parts of root file systems, named by a hash of what went into them."""
        return self.sim / "layers"

    @property
    def hosts(self) -> Path:
        """One folder a host."""
        return self.sim / "hosts"

    @property
    def client_key(self) -> Path:
        """Private key of user ``ops`` on every simulated host."""
        return self.sim / "client_key"

    @property
    def known_hosts(self) -> Path:
        """Public keys of the hosts that are up, by name, for ssh: a login pins them as the fleet does."""
        return self.sim / "known_hosts"

    def building(self, target: Path) -> Path:
        """Lock file of what is built once and shared; one each, so that nobody waits for a build they do not need."""
        return self.sim / "locks" / f"{target.name}.building"

    def host(self, name: str) -> HostPlaces:
        """Paths of one host."""
        return HostPlaces(self.hosts / name)


@dataclass(frozen=True)
class HostPlaces:
    """Paths of one host."""

    folder: Path

    @property
    def state(self) -> Path:
        """:class:`kit.sim.model.HostState` as JSON."""
        return self.folder / "state.json"

    @property
    def root(self) -> Path:
        """The host's ``/`` while it is up."""
        return self.folder / "root"

    @property
    def upper(self) -> Path:
        """What is this host's own, over the shared layers."""
        return self.folder / "upper"

    @property
    def console(self) -> Path:
        """What the host prints on its console."""
        return self.folder / "console.log"

    @property
    def supervisor_config(self) -> Path:
        """What the supervisor is told."""
        return self.folder / "supervisor.json"

    @property
    def supervisor_log(self) -> Path:
        """What the supervisor did: starts, reboots, the end."""
        return self.folder / "supervisor.log"


def netns(index: int) -> str:
    """Network namespace of the host with this index."""
    return f"b300kit-sim-{index}"


def veth(index: int) -> str:
    """Bridge end of its cable (15 characters at most)."""
    return f"b3kv{index}"


def address(index: int) -> str:
    """Its IPv4 address."""
    return f"169.254.77.{index}"
