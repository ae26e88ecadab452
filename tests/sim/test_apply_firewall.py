"""The firewall's rules on real packets, in network namespaces of our own: who gets through to what.

node has a published container port as docker makes one (DNAT in prerouting, a bridge named docker0, a container behind it).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kit.plan.areas.firewall import rules_text
from tests.unit.plan import world

TAG = f"bf{os.getpid() % 100000}"
NODE, ROUTER, STRANGER, CONTAINER = (f"{TAG}{x}" for x in "nrsc")
ENGINE, PUBLISHED, OTHER, SSH = 30000, 30001, 8080, 22

SERVER = """
import socket, sys, threading
def serve(port):
    s = socket.create_server(("", port), family=socket.AF_INET, backlog=50)
    while True:
        c, _ = s.accept()
        threading.Thread(target=lambda c=c: [c.sendall(x) for x in iter(lambda: c.recv(64), b"")], daemon=True).start()
for port in map(int, sys.argv[1:]):
    threading.Thread(target=serve, args=(port,)).start()
print("ready", flush=True)
"""
CLIENT = """
import socket, sys
try:
    with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=1.0) as c:
        c.sendall(b"x"); print("through" if c.recv(1) == b"x" else "cut")
except OSError:
    print("closed")
"""
STAY = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=3.0) as c:
    for line in sys.stdin:
        c.sendall(b"x"); print("through" if c.recv(1) == b"x" else "cut", flush=True)
"""


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def within(namespace: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", namespace, *command]


def link(one: str, one_address: str, two: str, two_address: str, name: str, bridge: str = "") -> None:
    """A veth pair between two namespaces; on a bridge of the first where one is named."""
    a, b = f"{TAG}{name}a"[:15], f"{TAG}{name}b"[:15]
    ip("link", "add", a, "netns", one, "type", "veth", "peer", "name", b, "netns", two)
    if bridge:
        ip("-n", one, "link", "add", bridge, "type", "bridge")
        ip("-n", one, "link", "set", a, "master", bridge)
    ip("-n", one, "addr", "add", one_address, "dev", bridge or a)
    ip("-n", two, "addr", "add", two_address, "dev", b)
    for namespace, device in ((one, bridge), (one, a), (two, b)):
        if device:
            ip("-n", namespace, "link", "set", device, "up")


DOCKER = f"""
table ip nat {{
    chain PREROUTING {{
        type nat hook prerouting priority dstnat; policy accept;
        fib daddr type local tcp dport {PUBLISHED} dnat to 172.17.0.2:{OTHER}
    }}
}}
"""


@pytest.fixture(scope="module")
def net(_sim_possible: None) -> Iterator[None]:
    """Router 10.77.1.2 and stranger 10.77.2.2 around the node; the container 172.17.0.2 behind docker0."""
    if os.geteuid() != 0:
        pytest.fail("network namespaces need root", pytrace=False)
    names = (NODE, ROUTER, STRANGER, CONTAINER)
    with contextlib.ExitStack() as undo:
        for name in names:
            ip("netns", "add", name)
            undo.callback(subprocess.run, ["ip", "netns", "del", name], check=False)
            ip("-n", name, "link", "set", "lo", "up")
        link(NODE, "10.77.1.1/24", ROUTER, "10.77.1.2/24", "r")
        link(NODE, "10.77.2.1/24", STRANGER, "10.77.2.2/24", "s")
        link(NODE, "172.17.0.1/16", CONTAINER, "172.17.0.2/16", "c", bridge="docker0")
        for name, gateway in ((ROUTER, "10.77.1.1"), (STRANGER, "10.77.2.1"), (CONTAINER, "172.17.0.1")):
            ip("-n", name, "route", "add", "default", "via", gateway)
        subprocess.run(within(NODE, "sysctl", "-qw", "net.ipv4.ip_forward=1"), check=True)
        subprocess.run(within(NODE, "nft", "-f", "-"), input=DOCKER, text=True, check=True)
        for name, ports in ((NODE, (ENGINE, OTHER, SSH)), (CONTAINER, (OTHER, ENGINE)), (STRANGER, (ENGINE, 28028))):
            server = undo.enter_context(
                subprocess.Popen(within(name, sys.executable, "-c", SERVER, *map(str, ports)), stdout=subprocess.PIPE, text=True)
            )
            undo.callback(server.kill)
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
        yield


def load(tmp_path: Path) -> None:
    spec = world.declared(network__engine={"ports": "30000-30003", "from": ["10.77.1.2/32"]})
    rules = tmp_path / "rules.nft"
    rules.write_text(rules_text(spec))
    subprocess.run(within(NODE, "nft", "--file", str(rules)), check=True, capture_output=True, text=True)


def reach(source: str, address: str, port: int) -> str:
    done = subprocess.run(
        within(source, sys.executable, "-c", CLIENT, address, str(port)), capture_output=True, text=True, timeout=20, check=True
    )
    return done.stdout.strip()


def test_without_the_rules_everyone_gets_through(net: None) -> None:
    """Else the closed doors below would prove nothing."""
    assert reach(STRANGER, "10.77.2.1", ENGINE) == "through"
    assert reach(STRANGER, "10.77.2.1", PUBLISHED) == "through"
    assert reach(STRANGER, "172.17.0.2", ENGINE) == "through"


@pytest.mark.parametrize(
    ("source", "address", "port", "outcome"),
    [
        (ROUTER, "10.77.1.1", ENGINE, "through"),
        (ROUTER, "10.77.1.1", PUBLISHED, "through"),
        (STRANGER, "10.77.2.1", ENGINE, "closed"),
        (STRANGER, "10.77.2.1", PUBLISHED, "closed"),
        (STRANGER, "10.77.1.1", ENGINE, "closed"),
        (STRANGER, "172.17.0.2", ENGINE, "closed"),
        (STRANGER, "10.77.2.1", SSH, "through"),
        (STRANGER, "10.77.2.1", OTHER, "through"),
        (NODE, "127.0.0.1", ENGINE, "through"),
        (NODE, "10.77.2.2", ENGINE, "through"),
        (NODE, "10.77.2.2", 28028, "through"),
        (CONTAINER, "10.77.2.2", ENGINE, "through"),
        (CONTAINER, "10.77.2.1", ENGINE, "closed"),
    ],
    ids=lambda value: str(value).replace(TAG, ""),
)
def test_who_gets_through(net: None, tmp_path: Path, source: str, address: str, port: int, outcome: str) -> None:
    load(tmp_path)
    assert reach(source, address, port) == outcome


def test_ping_and_other_tables_are_untouched(net: None, tmp_path: Path) -> None:
    before = subprocess.run(within(NODE, "nft", "list", "table", "ip", "nat"), capture_output=True, text=True, check=True).stdout
    load(tmp_path)
    after = subprocess.run(within(NODE, "nft", "list", "table", "ip", "nat"), capture_output=True, text=True, check=True).stdout
    assert before == after
    listed = subprocess.run(within(NODE, "nft", "list", "tables"), capture_output=True, text=True, check=True).stdout.splitlines()
    assert sorted(listed) == ["table inet b300kit", "table ip nat"]


def test_an_open_connection_survives_the_loading(net: None, tmp_path: Path) -> None:
    subprocess.run(within(NODE, "nft", "delete", "table", "inet", "b300kit"), check=False, capture_output=True)
    with subprocess.Popen(
        within(STRANGER, sys.executable, "-c", STAY, "10.77.2.1", str(ENGINE)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        for turn in range(3):
            if turn == 1:
                load(tmp_path)
                time.sleep(0.2)
            client.stdin.write("x\n")
            client.stdin.flush()
            assert client.stdout.readline() == "through\n"
        client.stdin.close()
    assert reach(STRANGER, "10.77.2.1", ENGINE) == "closed"


def test_invalid_rules_leave_the_old_ones_in_force(net: None, tmp_path: Path) -> None:
    load(tmp_path)
    broken = tmp_path / "broken.nft"
    broken.write_text((tmp_path / "rules.nft").read_text().replace("drop", "dorp"))
    assert subprocess.run(within(NODE, "nft", "--file", str(broken)), capture_output=True, check=False).returncode != 0
    assert reach(STRANGER, "10.77.2.1", ENGINE) == "closed"
    assert reach(ROUTER, "10.77.1.1", ENGINE) == "through"
