"""Commands on engines, gates, routers and references."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kit.cli.command import command

if TYPE_CHECKING:
    from kit.outcome import Outcome
    from kit.spec.target import Target


@command(
    help={
        "profile": "One of fleet/engines; all otherwise.",
        "python": "The engine's Python; the cached environment's otherwise.",
    }
)
def engine_check(profile: str = "", python: str = "") -> Outcome:
    """Would the installed engine take these profiles?"""
    from kit.engine import commands

    return commands.check(profile, python)


@command(help={"profile": "One of fleet/engines.", "address": "Where it listens.", "port": "Its port."})
def engine_show(profile: str, address: str = "127.0.0.1", port: int = 30000) -> Outcome:
    """The exact command and environment of a profile."""
    from kit.engine import commands

    return commands.show(profile, address, port)


@command(
    help={
        "host": "A host, a comma list of hosts, a group, or all.",
        "url": "An engine on this machine, http://127.0.0.1:PORT, in place of --host.",
        "profile": "With --url: which profile it is.",
        "engine_log": "With --url: its log file.",
        "only": "Only these gates, by comma; gives no pass.",
        "junit": "Write the results here as JUnit XML.",
    }
)
def smoke(host: str = "", url: str = "", profile: str = "", engine_log: str = "", only: str = "", junit: str = "") -> Outcome:
    """The post-deploy smoke gates: a table, evidence kept, a pass."""
    from kit.router import commands

    return commands.smoke_any(host, url, profile, engine_log, only, Path(junit) if junit else None)


@command(hosts=True)
def start(targets: list[Target]) -> Outcome:
    """Start engines, ports closed; wait until they make progress."""
    from kit.router import commands

    return commands.start(targets)


@command(hosts=True)
def stop(targets: list[Target]) -> Outcome:
    """Stop engines that are out of every router."""
    from kit.router import commands

    return commands.stop(targets)


@command(hosts=True, help={"override": "An operator's word: ends a quarantine. A missing pass it never replaces."})
def join(targets: list[Target], override: bool = False) -> Outcome:
    """Let gated hosts take traffic; watched for a while."""
    from kit.router import commands

    return commands.join(targets, override)


@command(hosts=True, help={"reason": "Kept on the host.", "stop": "Stop the engine once its streams have ended."})
def leave(targets: list[Target], reason: str = "an operator's word", stop: bool = False) -> Outcome:
    """Take hosts out of every router; their streams end first."""
    from kit.router import commands

    return commands.leave(targets, reason, stop)


@command(hosts=True)
def reconcile(targets: list[Target]) -> Outcome:
    """For a timer: hosts that stopped come back through gates."""
    from kit.router import commands

    return commands.reconcile(targets)


@command(hosts=True, help={"reason": "Kept on the host, shown by status."})
def quarantine(targets: list[Target], reason: str) -> Outcome:
    """Take hosts out, until release."""
    from kit.router import commands

    return commands.quarantine(targets, reason)


@command(hosts=True)
def release(targets: list[Target]) -> Outcome:
    """End a quarantine; the hosts still need a pass to join."""
    from kit.router import commands

    return commands.release(targets)


@command(hosts=True)
def status(targets: list[Target]) -> Outcome:
    """Who serves: drift, engine, gate, membership, routers."""
    from kit.router import commands

    return commands.status(targets)


@command(
    help={
        "url": "The accepted engine, http://127.0.0.1:PORT.",
        "profile": "Which profile it is.",
        "key": "Private SSH key that signs; its public half is in fleet/reference_signers.",
        "reason": "Why the reference is set or changed.",
        "write": "Sign and store; otherwise only say what would change (exit 3).",
        "fleet": "The fleet folder that keeps it; fleet/ otherwise.",
    }
)
def reference_record(
    url: str, profile: str, reason: str, key: str = "~/.ssh/id_ed25519", write: bool = False, fleet: str = ""
) -> Outcome:
    """Make an accepted engine's output the reference."""
    from kit.gates import commands

    return commands.record_reference(url, profile, key, reason, write, fleet)


@command(
    help={
        "name": "What a profile calls them: gates.prompts.",
        "model": "The model's folder; its own tokenizer is used.",
        "text": "A text file, or a folder of them.",
        "short": "COUNTxTOKENS.",
        "long": "COUNTxTOKENS.",
        "about": "Where the text is from.",
        "python": "The engine's Python; the cached environment's otherwise.",
    }
)
def prompts_pin(
    name: str, model: str, text: str, short: str = "32x64", long: str = "4x20000", about: str = "", python: str = ""
) -> Outcome:
    """Make a file of pinned prompts; never overwrites."""
    from kit.gates import commands

    return commands.pin_prompts(name, Path(model), Path(text), short, long, about, python)
