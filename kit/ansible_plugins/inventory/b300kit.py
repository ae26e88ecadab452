"""A fleet folder as an Ansible inventory (``ansible-playbook -i fleet ...``): the specs, keys and ssh options of invoke."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleParserError
from ansible.plugins.inventory import BaseInventoryPlugin

from kit.apply.inventory import connection_variables
from kit.errors import KitError
from kit.spec.load import load_fleet

DOCUMENTATION = r"""
    name: b300kit
    short_description: Hosts and groups of a b300kit fleet folder
    description:
      - Reads C(fleet.yml), C(lock.yml) and C(hosts/*.yml) of a fleet folder, with every check of C(invoke fleet.check).
      - Give the folder or its C(fleet.yml) with C(-i).
      - Host keys are pinned by the specs; no known_hosts file is read or written.
    author: b300kit
"""


class InventoryModule(BaseInventoryPlugin):  # type: ignore[misc]  # ansible has no types
    """Ansible's entry point."""

    NAME = "b300kit"

    def verify_file(self, path: str) -> bool:
        """Ours are ``fleet.yml`` files beside a ``lock.yml``."""
        file = Path(path)
        return bool(super().verify_file(path)) and file.name == "fleet.yml" and (file.parent / "lock.yml").is_file()

    def parse(self, inventory: Any, loader: Any, path: str, cache: bool = True) -> None:
        """Add every host and group. Raises AnsibleParserError with every failure of every spec."""
        super().parse(inventory, loader, path, cache)
        try:
            fleet = load_fleet(Path(path).parent)
        except KitError as error:
            raise AnsibleParserError(str(error)) from error
        for group in fleet.file.groups:
            inventory.add_group(group)
        for name, spec in fleet.hosts.items():
            inventory.add_host(name)
            for key, value in connection_variables(spec.connection, name, fleet.file.ssh_connect_timeout_s).items():
                inventory.set_variable(name, key, value)
        for group, members in fleet.file.groups.items():
            for member in members:
                inventory.add_child(group, member)
