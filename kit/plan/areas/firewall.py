"""Who may reach the engine, metrics and NCCL ports: one nft table of our own, other tables untouched.

The rule text and why each rule is where it is: ``roles/firewall/README.md``.
"""

from __future__ import annotations

import hashlib
from typing import Any

from kit.facts.model import Facts
from kit.facts.unknown import Unknown, is_known, show
from kit.plan import render
from kit.plan.model import Action, ManagedFile, Step
from kit.plan.steps import change, file_step, installed, keep, refuse, unit_step
from kit.plan.where import FIREWALL_LOADED, FIREWALL_RULES, FIREWALL_UNIT
from kit.spec.check import port_range
from kit.spec.model import HostSpec, Lock

ROLE = "firewall"
PACKAGE = "nftables"
SSH_PORT = 22


def steps(spec: HostSpec, lock: Lock, facts: Facts) -> list[Step]:
    """Tool, SSH kept out of it, files, unit, and the rules as the kernel has them."""
    package = _package(facts)
    unit_file = render.unit(FIREWALL_UNIT, "firewall.service.j2", rules=FIREWALL_RULES, loaded=FIREWALL_LOADED)
    rules = ManagedFile(path=FIREWALL_RULES, content=rules_text(spec), check_with="/usr/sbin/nft --check --file %s")
    files = [
        file_step("firewall.rules_file", rules, facts, ROLE, why="who may reach which port"),
        file_step("firewall.unit_file", unit_file, facts, ROLE, why="loads the rules at each boot", disruptive=True),
    ]
    unit = unit_step("firewall.unit", FIREWALL_UNIT, facts, ROLE, files, why="loads the rules at each boot")
    fresh = package.action is Action.CHANGE or unit.action is Action.CHANGE
    return [_ssh(spec), package, *files, unit, _table(spec, facts, fresh)]


def _package(facts: Facts) -> Step:
    absent = f"{PACKAGE} is not installed"
    return installed("firewall.package", PACKAGE, facts, ROLE, absent=absent, look="look at `dpkg -s`")


def ports(text: str) -> range:
    """``30000`` or ``28028-28031`` as a range of port numbers."""
    low, high = port_range(text)
    return range(low, high + 1)


def _ssh(spec: HostSpec) -> Step:
    """A rule set that names the SSH port would lock everyone out, this kit first."""
    held = {SSH_PORT, spec.connection.port}
    hit = [f"{name} {group.ports}" for name, group in spec.network.groups().items() if held & set(ports(group.ports))]
    expected = f"ports {', '.join(str(p) for p in sorted(held))} in no guarded range"
    if hit:
        found = ", ".join(hit)
        return refuse(
            "firewall.ssh",
            f"the declared ports {found} hold the SSH port",
            expected=expected,
            found=found,
            next="declare other ports",
        )
    return keep("firewall.ssh", "SSH is in no guarded port range", expected=expected, found="none")


def rules_text(spec: HostSpec) -> str:
    """The nft file: replaces our table in one transaction. Carries the hash of its rules as the table's comment."""
    groups: list[dict[str, Any]] = []
    for name, group in spec.network.groups().items():
        groups.append(
            {
                "name": name,
                "ports": group.ports,
                "v4": sorted(str(n) for n in group.from_ if n.version == 4),
                "v6": sorted(str(n) for n in group.from_ if n.version == 6),
            }
        )
    digest = hashlib.sha256(render.text("firewall.nft.j2", groups=groups, digest="").encode()).hexdigest()
    return render.text("firewall.nft.j2", groups=groups, digest=digest)


def digest_of(rules: str) -> str:
    """The hash that a rule text carries as its table's comment."""
    return rules.split('comment "', 1)[1].split('"', 1)[0]


def _table(spec: HostSpec, facts: Facts, fresh: bool) -> Step:
    """In effect: the kernel's table is the one that was listed right after loading, and that came from these rules."""
    id, live = "firewall.table", facts.firewall.table_text
    digest = digest_of(rules_text(spec))
    expected = f"table inet b300kit of rules {digest[:12]}"
    arguments = {"units_restart": [FIREWALL_UNIT]}
    if fresh:
        return change(
            id, "the rules are loaded with their unit", ROLE, expected=expected, found="before the load", arguments=arguments
        )
    if not is_known(live):
        return refuse(
            id, f"the rule set in the kernel is {show(live)}", expected=expected, found=live, next="`nft list ruleset` as root"
        )
    recorded = facts.files.get(FIREWALL_LOADED)
    loaded = recorded.content if recorded is not None and recorded.exists else Unknown(unknown="no record of a load")
    if not live.strip():
        return change(id, "the table is not in the kernel", ROLE, expected=expected, found="absent", arguments=arguments)
    if digest not in live:
        return change(
            id, "the kernel holds other rules than declared", ROLE, expected=expected, found="other rules", arguments=arguments
        )
    if not is_known(loaded) or loaded.strip() != live.strip():
        found = "changed since" if is_known(loaded) else show(loaded)
        return change(
            id, f"the table is not what was loaded ({found})", ROLE, expected=expected, found=found, arguments=arguments
        )
    return keep(id, "the kernel holds the declared rules", expected=expected, found=expected)
