"""The command line. Each task says what it takes and calls what does it; nothing is decided here.

Imports stay inside the tasks: `invoke --list` must answer at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from invoke.collection import Collection

from kit.cli.command import KitTask, command

if TYPE_CHECKING:
    from kit.outcome import Outcome
    from kit.spec.target import Target

_RUN = "A run's id, a part of it that only one run has, or latest."
_VERBOSE = "Show also what stays as it is."


@command()
def doctor() -> Outcome:
    """Is this control machine ready, and what is missing?"""
    from kit import doctor as machine
    from kit.cli import simulated

    return machine.examine(simulated.requirements())


@command(
    help={
        "host": "USER@ADDRESS[:PORT] of a live host.",
        "name": "Its name; the host's own otherwise.",
        "accept_host_key": "SHA256:... after you compared it with the host's own.",
        "identity_file": "Private key; the ssh agent's otherwise.",
        "write": "Put the spec into the fleet folder; never overwrites.",
    }
)
def fleet_init(host: str, name: str = "", accept_host_key: str = "", identity_file: str = "", write: bool = False) -> Outcome:
    """Propose a spec from a live host's facts; --write keeps it."""
    from kit.spec import init

    return init.propose_host(host, name, accept_host_key, identity_file, write)


@command()
def fleet_check() -> Outcome:
    """Are all specs valid? Every failure, with file and line."""
    from kit import paths
    from kit.spec import commands

    return commands.check(paths.fleet_dirs())


@command(hosts=True, help={"check": "Only compare; exit 3 when something would move."})
def fleet_lock(targets: list[Target], check: bool = False) -> Outcome:
    """Take an accepted host's versions into lock.yml."""
    from kit.spec import relock

    return relock.lock_from(targets, check)


@command(help={"check": "Only compare; exit 3 when one is stale."})
def fleet_schema(check: bool = False) -> Outcome:
    """Write the JSON Schemas that editors use."""
    from kit.spec import commands

    return commands.write_schemas(commands.schema_folder(), check)


@command(
    hosts=True,
    help={
        "measure_cores": "Also measure each core's speed: loads the machine for a while.",
        "burn_in": "Also check HBM, links and NCCL: loads idle GPUs for a while.",
        "verbose": "Show also packages, services, files and kernel settings.",
    },
)
def probe(targets: list[Target], measure_cores: bool = False, burn_in: bool = False, verbose: bool = False) -> Outcome:
    """Facts of hosts, read-only."""
    from kit import flow

    return flow.probe(targets, measure_cores, burn_in, verbose)


@command(hosts=True, help={"verbose": _VERBOSE})
def plan(targets: list[Target], verbose: bool = False) -> Outcome:
    """The dry run, as a diff; exit 3 when something would change."""
    from kit import flow

    return flow.plan(targets, verbose)


@command(
    hosts=True,
    help={
        "check": "Only plan.",
        "reboot": "Reboot hosts where a step needs it.",
        "verbose": _VERBOSE,
    },
)
def provision(targets: list[Target], check: bool = False, reboot: bool = False, verbose: bool = False) -> Outcome:
    """Make hosts what their specs say: plan, apply, verify."""
    from kit import flow

    return flow.provision(targets, check, reboot, verbose)


@command(hosts=True, help={"textfile": "Write metrics here, for the node exporter's textfile collector.", "verbose": _VERBOSE})
def drift(targets: list[Target], textfile: str = "", verbose: bool = False) -> Outcome:
    """Like plan, for cron: has a host moved from its spec?"""
    from kit import flow

    return flow.drift(targets, Path(textfile) if textfile else None, verbose)


@command(hosts=True, help={"junit": "Write the results here as JUnit XML.", "verbose": _VERBOSE})
def verify(targets: list[Target], junit: str = "", verbose: bool = False) -> Outcome:
    """Check hosts from inside and outside; changes nothing."""
    from kit import flow

    return flow.verify(targets, Path(junit) if junit else None, verbose)


@command(
    name="patch-check",
    help={
        "source": "A plugin source tree. It is run: check only trees that you would build.",
        "series": "<project>/<version>, when there are several.",
        "route": "Only the patches of this route: patch or upstream.",
    },
)
def patch_check(source: str, series: str = "", route: str = "") -> Outcome:
    """Does each patch still apply to a plugin release?"""
    from kit.patch.flow import check

    return check(Path(source), series or None, route=route or None)


_PROFILE = "An image of images/: sim or b300."
_IMAGE = "A profile (its latest image), or an image id."


@command(
    name="build-image",
    help={
        "profile": _PROFILE,
        "check": "Verify lock and patches alone; build nothing.",
        "dry_run": "Show the Dockerfile and what would be done.",
        "builder": "buildah (the same id each time) or docker.",
        "fresh": "Build from the first layer, without any cache.",
    },
)
def build_image(
    profile: str, check: bool = False, dry_run: bool = False, builder: str = "buildah", fresh: bool = False
) -> Outcome:
    """An engine image from its lock, patched, proved from inside."""
    from kit.image import flow

    return flow.build(profile, check, dry_run, builder, fresh)


@command(
    help={
        "profile": _PROFILE,
        "check": "Only compare with this checkout; exit 3 when the lock is stale.",
        "own": "Take anew only what this checkout itself holds (patches, kernels); asks no network.",
    }
)
def image_lock(profile: str, check: bool = False, own: bool = False) -> Outcome:
    """Resolve an image's digests and hashes; shows what moved."""
    from kit.image import flow

    return flow.lock_image(profile, check, own)


@command(help={"image": _IMAGE})
def image_verify(image: str) -> Outcome:
    """Is an image what its manifest and lock say? Exit 5 if not."""
    from kit.image import flow

    return flow.verify(image)


@command(
    hosts=True,
    help={
        "image": "A profile or an image id; else the one that the host declares.",
        "bundle": "An archive of image.bundle, instead.",
        "prune": "Remove old images: neither running, nor the one before.",
    },
)
def image_push(targets: list[Target], image: str = "", bundle: str = "", prune: bool = False) -> Outcome:
    """Deliver an image to hosts and prove that it starts there."""
    from kit.image import push

    return push.push(targets, image, bundle, prune)


@command(
    help={"image": "A profile (its latest image), or an image id.", "key": "SSH private key file, or .pub of one in the agent."}
)
def image_sign(image: str, key: str) -> Outcome:
    """Sign what an image is; hosts verify it offline."""
    from kit.image import sign

    return sign.sign(image, key)


@command(
    hosts=True,
    help={"source": "The model's folder here: weights, tokenizer, chat template.", "name": "Its folder's name on the hosts."},
)
def weights_push(targets: list[Target], source: str, name: str) -> Outcome:
    """Put a model onto hosts: resumable, never over another one."""
    from kit.image import weights

    return weights.push(targets, source, name)


@command(
    hosts=True,
    help={
        "source": "The model's folder here, to compare with.",
        "name": "Its folder's name on the hosts.",
        "full": "Read every byte; else size and sampled hash.",
    },
)
def weights_verify(targets: list[Target], source: str, name: str, full: bool = False) -> Outcome:
    """Is a model on hosts as it is here? Exit 5 if not."""
    from kit.image import weights

    return weights.verify(targets, source, name, full)


@command(help={"image": _IMAGE, "out": "The archive to write."})
def image_bundle(image: str, out: str) -> Outcome:
    """One archive of an image that installs without a network."""
    from kit.image import push

    return push.make_bundle(image, out)


@command(help={"keep": "Leave the simulated hosts running, to look around."})
def demo(keep: bool = False) -> Outcome:
    """The whole flow on two simulated hosts."""
    from kit import demo as show

    return show.run(keep)


@command(
    help={
        "name": "What to call it; --host takes it at once.",
        "profile": "Which hardware, healthy or faulty; see kit/sim/profiles.",
        "runtime": "nspawn (seconds) or qemu (for cpusets, limits, huge pages, NUMA).",
    }
)
def sim_up(name: str, profile: str = "b300-4", runtime: str = "nspawn") -> Outcome:
    """Boot a simulated host."""
    from kit.cli import simulated

    return simulated.up(name, profile, runtime)


@command(help={"name": "Which one.", "all": "All of them."})
def sim_down(name: str = "", all: bool = False) -> Outcome:
    """Take simulated hosts away, whole."""
    from kit.cli import simulated

    return simulated.down(name, all)


@command()
def sim_status() -> Outcome:
    """Which simulated hosts are up?"""
    from kit.cli import simulated

    return simulated.status()


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


@command(help={"limit": "How many, newest first; 0 for all."})
def record_list(limit: int = 20) -> Outcome:
    """Runs that left a record."""
    from kit.cli import records

    return records.listing(limit)


@command(help={"run": _RUN})
def record_show(run: str = "latest") -> Outcome:
    """What a run did, and how long each stage took."""
    from kit.cli import records

    return records.show(run)


@command(help={"run": _RUN})
def record_report(run: str = "latest") -> Outcome:
    """Write a run's HTML page."""
    from kit.cli import records

    return records.report(run)


@command(help={"run": _RUN})
def record_verify(run: str = "latest") -> Outcome:
    """Is a record as it was written? Exit 5 if not."""
    from kit.cli import records

    return records.verify(run)


def _group(**tasks: KitTask) -> Collection:
    return Collection(**tasks)


namespace = Collection(
    start,
    stop,
    smoke,
    join,
    leave,
    status,
    reconcile,
    quarantine,
    release,
    doctor,
    probe,
    plan,
    provision,
    drift,
    verify,
    demo,
    patch_check,
    build_image,
)
namespace.add_collection(_group(init=fleet_init, check=fleet_check, lock=fleet_lock, schema=fleet_schema), "fleet")
namespace.add_collection(_group(check=engine_check, show=engine_show), "engine")
namespace.add_collection(
    _group(bundle=image_bundle, lock=image_lock, push=image_push, sign=image_sign, verify=image_verify), "image"
)
namespace.add_collection(_group(pin=prompts_pin), "prompts")
namespace.add_collection(_group(record=reference_record), "reference")
namespace.add_collection(_group(push=weights_push, verify=weights_verify), "weights")
namespace.add_collection(_group(up=sim_up, down=sim_down, status=sim_status), "sim")
namespace.add_collection(_group(list=record_list, show=record_show, report=record_report, verify=record_verify), "record")
