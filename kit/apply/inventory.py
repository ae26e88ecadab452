"""How Ansible reaches a host: what the inventory plugin and ``invoke`` alike tell it, so that both use one connection."""

from __future__ import annotations

import shlex
from typing import Any

from kit.apply.ssh_client import key_files, ssh_options
from kit.spec.model import Connection


def connection_variables(connection: Connection, name: str, connect_timeout_s: int) -> dict[str, Any]:
    """Ansible's variables of a host's connection; the key is named by its file. Raises KitError as ``ssh_options`` does."""
    variables: dict[str, Any] = {
        "ansible_host": connection.address,
        "ansible_port": connection.port,
        "ansible_user": connection.user,
        # Ansible's own default options would come first and win over ours.
        "ansible_ssh_args": "",
        "ansible_ssh_common_args": shlex.join(ssh_options(connection, name, connect_timeout_s)),
    }
    for key_file in key_files(connection):
        variables["ansible_ssh_private_key_file"] = key_file
    return variables
