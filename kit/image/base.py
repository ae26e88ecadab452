"""The Debian tree that an image starts from, as an archive with a digest; or a published image by its digest."""

from __future__ import annotations

import hashlib
import re
import tarfile
import tempfile
from pathlib import Path
from typing import Protocol

from kit.errors import ExitCode, KitError, failure
from kit.image.commands import log, run
from kit.image.model import DebianBase, RegistryBase
from kit.image.places import Places

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_TIMEOUT_S = 1800
# Manuals and translations weigh more than the packages; what holds a time or this machine's name would differ each time.
_OPTIONS = (
    "--dpkgopt=path-exclude=/usr/share/man/*",
    "--dpkgopt=path-exclude=/usr/share/locale/*",
    "--dpkgopt=path-exclude=/usr/share/doc/*",
    "--dpkgopt=path-include=/usr/share/doc/*/copyright",
    '--customize-hook=rm -rf "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/var/cache/ldconfig/aux-cache',
    '--customize-hook=rm -rf "$1"/var/lib/apt/lists/* "$1"/var/log/*',
)


def sha256_file(path: Path) -> str:
    """Of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def archive(places: Places, base: DebianBase, digest: str | None, epoch: int) -> tuple[Path, str]:
    """The tree's archive and its ``sha256:`` digest: from the cache when it is there with this digest, else made.

    Raises KitError(APPLY_FAILED, ``image.base_moved``) when what Debian has now is not what the lock pinned.
    """
    if digest is not None:
        cached = places.bases / f"{digest.removeprefix('sha256:')}.tar"
        if cached.is_file():
            found = f"sha256:{sha256_file(cached)}"
            if found == digest:
                return cached, digest
            cached.unlink()
            log.warning("%s was not what its name says, and is made again", cached.name)
    fresh, found = _build(places, base, epoch)
    if digest is not None and found != digest:
        raise KitError(
            failure(
                "image.base_moved",
                f"the Debian base ({base.suite})",
                digest,
                found,
                "Debian has other versions now: invoke image.lock shows which, and takes them",
            ),
            ExitCode.APPLY_FAILED,
        )
    return fresh, found


def _build(places: Places, base: DebianBase, epoch: int) -> tuple[Path, str]:
    log.info("building the Debian base with mmdebstrap (about a minute)")
    places.bases.mkdir(parents=True, exist_ok=True)
    if not KEYRING.is_file():
        step = "apt-get install debian-archive-keyring"
        raise KitError(failure("image.tool", str(KEYRING), "Debian's archive keys", "not found", step), ExitCode.USAGE)
    with tempfile.TemporaryDirectory(dir=places.bases) as scratch:
        target = Path(scratch) / "base.tar"
        run(
            [
                "mmdebstrap", "--variant=minbase", "--mode=auto", "--format=tar", f"--keyring={KEYRING}", *_OPTIONS,
                f"--include={','.join(base.packages)}", *_proxy(), base.suite, target, *_mirror(),
            ],
            "image.base",
            _TIMEOUT_S,
            {"SOURCE_DATE_EPOCH": str(epoch)},
        )  # fmt: skip
        digest = sha256_file(target)
        kept = places.bases / f"{digest}.tar"
        target.replace(kept)
    return kept, f"sha256:{digest}"


def _mirror() -> list[str]:
    """The machine's own Debian mirror; none on another distribution: mmdebstrap then takes Debian's."""
    text = run(["apt-get", "indextargets", "--format", "$(REPO_URI)|$(LABEL)|$(COMPONENT)"], "image.base", 60)
    return [uri for uri, _, rest in (line.partition("|") for line in text.splitlines()) if rest == "Debian|main"][:1]


def _proxy() -> list[str]:
    """The machine's apt proxy settings: mmdebstrap's apt does not read the machine's configuration."""
    lines = run(["apt-config", "dump"], "image.base", 60).splitlines()
    wanted = ("Acquire::http::Proxy", "Acquire::https::Proxy")
    return [f"--aptopt={line.rstrip(';')}" for line in lines if line.startswith(wanted) and '""' not in line]


def packages_in(path: Path) -> dict[str, str]:
    """Name -> version of every package that an archive's dpkg has installed."""
    with tarfile.open(path) as tar:
        member = next((m for m in tar if m.name.removeprefix("./") == "var/lib/dpkg/status"), None)
        handle = tar.extractfile(member) if member is not None else None
        text = handle.read().decode() if handle is not None else ""
    out = {}
    for block in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.*)$", block, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            out[fields["Package"]] = fields["Version"]
    return dict(sorted(out.items()))


def resolve_published(builder: Published, base: RegistryBase) -> tuple[str, dict[str, str]]:
    """The digest that a published image's name has now, and the versions its package index offers for what is wanted on it.

    Raises KitError(UNREACHABLE, ``image.registry``) when the registry or the package index cannot be asked.
    """
    digest = builder.pull(base.reference)
    said = builder.ask(f"{base.reference.rpartition(':')[0]}@{digest}", _ASK, list(base.packages))
    versions = dict(re.findall(r"^Inst (\S+) .*?\(([^ )]+)", said, re.MULTILINE))
    held = dict(re.findall(r"^Have (\S+) (\S+)$", said, re.MULTILINE))
    missing = [name for name in base.packages if name not in versions and name not in held]
    if missing:
        raise KitError(
            failure("image.registry", base.reference, ", ".join(missing), "not offered", "correct base.packages"),
            ExitCode.UNREACHABLE,
        )
    return digest, {name: versions.get(name) or held[name] for name in base.packages}


class Published(Protocol):
    """What is needed of a builder to look at a published image."""

    def pull(self, reference: str) -> str:
        """Fetch it; its digest."""
        ...

    def ask(self, image: str, script: str, arguments: list[str]) -> str:
        """Standard output of a shell script in it, with network."""
        ...


_ASK = """
apt-get -q -y update >&2
apt-get -q -s install --no-install-recommends "$@"
for name in "$@"; do dpkg-query -W -f 'Have ${Package} ${Version}\\n' "$name" 2>/dev/null || true; done
"""
