"""The container engine as it runs, and the packet filter as the kernel has it."""

from __future__ import annotations

import json
import os
import re
import socket
import struct

from kit.facts.host.read import Json, Unreadable, fact, is_unknown, output, run, text, unknown

TABLE = "b300kit"
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def docker_info() -> Json:
    """The daemon's own answer. Only to be asked while it runs: a socket unit would start it."""
    answer = json.loads(output(["docker", "info", "--format", "{{json .}}"], 8, {"DOCKER_HOST": "unix:///var/run/docker.sock"}))
    errors = answer.get("ServerErrors")
    if errors:
        raise Unreadable(f"docker: {'; '.join(errors)[:200]}")
    return answer


def docker(services: dict[str, Json]) -> Json:
    """The ``docker`` part of the facts."""
    state = services["docker.service"]["active"]
    stopped = state if is_unknown(state) else unknown(f"docker.service is {state}")
    info = fact(docker_info) if state == "active" else stopped

    def of(name: str) -> Json:
        return info if is_unknown(info) else fact(lambda: info[name])

    return {
        "version": of("ServerVersion"),
        "live_restore": of("LiveRestoreEnabled"),
        "log_driver": of("LoggingDriver"),
        "data_root": of("DockerRootDir"),
        "cdi_devices": info if is_unknown(info) else fact(lambda: cdi_devices(info)),
        "running_containers": of("ContainersRunning"),
    }


def cdi_devices(info: Json) -> list[str]:
    """Names such as ``nvidia.com/gpu=0``: what the daemon discovered, or what the specification files it reads offer."""
    discovered = [device["ID"] for device in info.get("DiscoveredDevices") or [] if device.get("Source") == "cdi"]
    if discovered:
        return sorted(discovered)
    found: list[str] = []
    for folder in info.get("CDISpecDirs") or _CDI_FOLDERS:
        if not os.path.isdir(folder):
            continue
        for name in sorted(os.listdir(folder)):
            if name.endswith((".json", ".yaml", ".yml")):
                found += cdi_names(text(os.path.join(folder, name)))
    return sorted(set(found))


def cdi_names(words: str) -> list[str]:
    """Device names of one CDI specification, JSON or the YAML that nvidia-ctk writes."""
    try:
        document = json.loads(words)
        return [f"{document['kind']}={device['name']}" for device in document["devices"]]
    except ValueError:
        pass
    kind = re.search(r"^kind: *\"?([^\"\s]+)", words, re.MULTILINE)
    section = re.search(r"^devices:\n((?:[ -].*\n?)*)", words, re.MULTILINE)
    if not kind or not section:
        raise Unreadable("not a CDI specification")
    names = re.findall(r"^(?:- |  )name: *[\"']?([^\"'\s]+)", section.group(1), re.MULTILINE)
    return [f"{kind.group(1)}={name}" for name in names]


def table_text() -> str:
    """The kit's table as nft prints it; empty when it is not there."""
    if os.geteuid() != 0:
        raise Unreadable("reading the packet filter needs root")
    status, out, err = run(["nft", "--stateless", "list", "table", "inet", TABLE])
    if status == 0:
        return out
    if "No such file or directory" in err:
        return ""
    raise Unreadable(f"nft ended with status {status}: {err.strip()[:160]}")


def listening() -> list[str]:
    """``address:port`` of every listening TCP socket of this network namespace."""
    found = set()
    for path, family in (("/proc/net/tcp", socket.AF_INET), ("/proc/net/tcp6", socket.AF_INET6)):
        if not os.path.exists(path):
            continue
        for line in text(path).splitlines()[1:]:
            fields = line.split()
            if fields[3] != "0A":
                continue
            digits, _, port = fields[1].partition(":")
            words = [struct.pack("=I", int(digits[i : i + 8], 16)) for i in range(0, len(digits), 8)]
            address = socket.inet_ntop(family, b"".join(words))
            shown = f"[{address}]" if ":" in address else address
            found.add(f"{shown}:{int(port, 16)}")
    return sorted(found)


def firewall() -> Json:
    """The ``firewall`` part of the facts."""
    return {"table_text": fact(table_text), "listening_tcp": fact(listening)}
