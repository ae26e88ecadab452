"""One bridge on the control machine, one network namespace and cable a host. Addresses are link-local."""

from __future__ import annotations

import json
from collections.abc import Iterable
from ipaddress import ip_interface, ip_network
from pathlib import Path
from typing import Any

from kit.errors import ExitCode, KitError, failure
from kit.sim.commands import run, succeeds
from kit.sim.places import BRIDGE, FIRST_INDEX, LAST_INDEX, SUBNET, address, netns, veth


def collisions(addresses: Iterable[dict[str, Any]], routes: Iterable[dict[str, Any]]) -> list[str]:
    """What on this machine already uses our subnet, from ``ip -j addr`` and ``ip -j route``; pure.

    A wider route (169.254.0.0/16 of link-local addressing) is no collision: ours is more specific and wins.
    """
    ours = ip_network(SUBNET)
    found = []
    for link in addresses:
        if link.get("ifname") == BRIDGE:
            continue
        for info in link.get("addr_info", []):
            if info.get("family") == "inet" and ip_interface(f"{info['local']}/{info['prefixlen']}").ip in ours:
                found.append(f"{info['local']}/{info['prefixlen']} on {link['ifname']}")
    for route in routes:
        if route.get("dev") == BRIDGE or route.get("dst") in (None, "default"):
            continue
        there = ip_network(route["dst"], strict=False)
        if there.version == 4 and there.subnet_of(ours):  # type: ignore[arg-type]
            found.append(f"route {route['dst']} on {route.get('dev', '?')}")
    return found


def _links() -> list[dict[str, Any]]:
    listing: list[dict[str, Any]] = json.loads(run(["ip", "-j", "addr"]) or "[]")
    return listing


def free_index(taken: Iterable[int]) -> int:
    """Lowest index that neither a state file nor an interface of this machine uses. Call with the machine lock held."""
    names = {link.get("ifname") for link in _links()}
    used = set(taken)
    for index in range(FIRST_INDEX, LAST_INDEX + 1):
        if index not in used and veth(index) not in names:
            return index
    raise KitError(
        failure("sim.addresses", SUBNET, "a free address", f"all of {FIRST_INDEX}..{LAST_INDEX} in use", "invoke sim.down"),
        ExitCode.INTERNAL,
    )


def _tag(folder: Path) -> str:
    """What a cable says of whose it is: the host's folder, or as much of its end as the kernel keeps."""
    return str(folder)[-250:]


def index_of(folder: Path) -> int | None:
    """Index of the cable that says it is of the host with this folder."""
    tag = _tag(folder)
    names = [str(link["ifname"]) for link in _links() if link.get("ifalias") == tag]
    return next((index for index in range(FIRST_INDEX, LAST_INDEX + 1) if veth(index) in names), None)


def hosts_in(hosts: Path) -> set[str]:
    """Names of the hosts under this folder that a cable says it is of."""
    names = (str(link.get("ifalias", "")).rpartition("/")[2] for link in _links())
    return {name for name in names if name and index_of(hosts / name) is not None}


def connect(index: int, folder: Path) -> None:
    """Make the namespace and its cable, tagged with the host's `folder`; the bridge too when it is not there.

    Raises KitError(``sim.subnet``) on a collision.
    """
    links = _links()
    if BRIDGE not in {link.get("ifname") for link in links}:
        clash = collisions(links, json.loads(run(["ip", "-j", "route"]) or "[]"))
        if clash:
            raise KitError(
                failure("sim.subnet", SUBNET, "a subnet that nothing on this machine uses", "; ".join(clash), "free it"),
                ExitCode.USAGE,
            )
        run(["ip", "link", "add", BRIDGE, "type", "bridge"])
        run(["ip", "addr", "add", "169.254.77.1/24", "dev", BRIDGE])
        run(["ip", "link", "set", BRIDGE, "up"])
    space = netns(index)
    run(["ip", "netns", "add", space])
    # The same hardware address each time an address is used: this machine may remember the last host's for half a minute.
    mac = f"02:b3:00:{SUBNET.split('.')[2]}:00:{index:02x}"
    run(["ip", "link", "add", veth(index), "type", "veth", "peer", "name", "eth0", "address", mac, "netns", space])
    run(["ip", "link", "set", veth(index), "alias", _tag(folder), "master", BRIDGE, "up"])
    run(["ip", "-n", space, "addr", "add", f"{address(index)}/24", "dev", "eth0"])
    run(["ip", "-n", space, "link", "set", "lo", "up"])
    run(["ip", "-n", space, "link", "set", "eth0", "up"])


def disconnect(index: int) -> None:
    """Take namespace and cable away, and the bridge when it was the last; nothing happens when they are gone already."""
    if succeeds(["ip", "link", "show", veth(index)]):
        run(["ip", "link", "del", veth(index)])
    if netns(index) in run(["ip", "netns", "list"]).split():
        run(["ip", "netns", "del", netns(index)])
    ports = json.loads(run(["ip", "-j", "link"]) or "[]")
    names = {port.get("ifname") for port in ports}
    if BRIDGE in names and not any(port.get("master") == BRIDGE for port in ports):
        run(["ip", "link", "del", BRIDGE])
