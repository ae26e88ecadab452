"""Proof from inside: looks at the image it runs in, and says what is there. Labels are not read; files and imports are.

    write     as the last step of a build: the manifest, or nothing and every reason
    verify    in a finished image: the same look again, compared with the manifest; prints it

Every failure is one line of JSON on standard error, after ``b300kit-failure:``. Plain Python: nothing to install.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib
import json
import os
import pwd
import re
import shutil
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

SHARE = Path("/usr/share/b300kit")
MANIFEST = SHARE / "manifest.json"
GROUP = "sglang.srt.plugins"
CONTRACT = "sglang.kernels.plugin_kernels.nvidia.spec"
BUILD_TOOLS = ("gcc", "cc", "g++", "c++", "clang", "ld", "as", "make", "cmake", "nvcc", "git", "pip", "pip3")

Failures = list[dict[str, str]]


def failure(code: str, where: str, expected: object, found: object, next_step: str) -> dict[str, str]:
    """As the kit's own Failure."""
    return {"code": code, "where": where, "expected": str(expected), "found": str(found), "next": next_step}


def sha256(path: Path) -> str:
    """Of a file's bytes, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def normalized(name: str) -> str:
    """A distribution's name as locks have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def tree(root: Path) -> dict[str, str]:
    """Relative path -> hash or link target, of every file below a folder, byte code too."""
    paths: list[Path] = []
    for folder, _, names in os.walk(root):
        paths += [Path(folder) / name for name in names]
    links = {str(path.relative_to(root)): f"-> {path.readlink()}" for path in paths if path.is_symlink()}
    files = [path for path in paths if not path.is_symlink()]
    with ThreadPoolExecutor(4) as pool:
        hashes = list(pool.map(sha256, files))
    modes = (f"{path.stat().st_mode & 0o7777:o} {found}" for path, found in zip(files, hashes, strict=True))
    return links | {str(path.relative_to(root)): text for path, text in zip(files, modes, strict=True)}


def digest(content: object) -> str:
    """Of JSON-able content, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def recorded(distribution: Distribution) -> Iterator[tuple[str, str]]:
    """(path relative to site-packages, hash in hex) of what a distribution's RECORD lists with a hash."""
    for row in csv.reader((distribution.read_text("RECORD") or "").splitlines()):
        kind, _, value = row[1].partition("=")
        if kind == "sha256":
            yield row[0], base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()


def python_packages(expected: dict[str, Any], files: dict[str, str], failures: Failures) -> dict[str, Any]:
    """Every installed distribution: version, and its files against its own RECORD and the lock."""
    site = Path(expected["site_packages"])
    prefix = Path(expected["prefix"])
    found: dict[str, Any] = {}
    owned: set[str] = set()
    for distribution in distributions(path=[str(site)]):
        name = normalized(distribution.metadata["Name"])
        if name in found:
            failures.append(failure("image.package_twice", name, "one version", "two", "look at the image's lock"))
        wrong = []
        for path, wanted in recorded(distribution):
            inside = os.path.relpath(os.path.normpath(site / path), prefix)
            owned.add(inside)
            if files.get(inside, "absent").rpartition(" ")[2] != wanted:
                wrong.append(path)
        if wrong:
            shown = ", ".join(sorted(wrong)[:5]) + (f" and {len(wrong) - 5} more" if len(wrong) > 5 else "")
            failures.append(failure("image.file_changed", name, "each file as its RECORD says", shown, "build the image again"))
        found[name] = {"version": distribution.version, "record_sha256": digest(sorted(recorded(distribution)))}
    for name, version in expected["packages"].items():
        there = found.get(name, {}).get("version", "nothing")
        if there != version:
            failures.append(failure("image.package", name, version, there, "build again from the lock"))
    for name in sorted(set(found) - set(expected["packages"]) - set(expected["own"])):
        failures.append(failure("image.package_unknown", name, "not installed", found[name]["version"], "remove it or lock it"))
    for name in sorted(set(expected["own"]) - set(found)):
        failures.append(failure("image.package", name, "installed", "nothing", "build the image again"))
    below = os.path.relpath(site, prefix) + "/"
    stray = [p for p in files if p.startswith(below) and p not in owned and not p.endswith((".pyc", ".dist-info/RECORD"))]
    if stray:
        shown = ", ".join(sorted(stray)[:5])
        failures.append(failure("image.file_unknown", str(site), "files that a package owns", shown, "build the image again"))
    return found


def debian_packages(expected: dict[str, Any], failures: Failures) -> dict[str, str]:
    """Name -> version of what dpkg has installed."""
    found: dict[str, str] = {}
    for block in Path("/var/lib/dpkg/status").read_text().split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Status): (.*)$", block, re.MULTILINE))
        if fields.get("Status", "").endswith(" installed"):
            found[fields["Package"]] = fields["Version"]
    for name, version in expected["debian"].items():
        there = found.get(name, "nothing")
        if there != version:
            failures.append(failure("image.debian_package", name, version, there, "invoke image.lock, or build again"))
    return found


def field(spec: Any, name: str) -> Any:
    """A dotted field of a spec; enum members by their names."""
    for part in name.split("."):
        spec = getattr(spec, part)
    return sorted(getattr(member, "name", str(member)) for member in spec) if isinstance(spec, (set, frozenset)) else spec


def plugin(expected: dict[str, Any], failures: Failures) -> dict[str, Any]:
    """Ask SGLang's own contract what it would get, as an engine does at its start."""
    wanted = expected["plugin"]
    site = expected["site_packages"]
    entries = [e for d in distributions(path=[site]) for e in d.entry_points if e.group == GROUP]
    mine = [e for e in entries if e.name == wanted["entry_point"]]
    if len(mine) != 1:
        found = ", ".join(e.value for e in mine) or "none"
        failures.append(failure("interface.entry_point", wanted["entry_point"], "declared once", found, "check the plugin"))
        return {}
    allowed = {name.strip() for name in os.environ.get("SGLANG_PLUGINS", "").split(",") if name.strip()}
    if allowed and wanted["entry_point"] not in allowed:
        shown = ",".join(sorted(allowed))
        failures.append(failure("interface.not_allowed", "SGLANG_PLUGINS", wanted["entry_point"], shown, "add it"))
    contract = importlib.import_module(CONTRACT)
    for entry in entries:
        # SGLang only logs what one of them raises, and serves at the old speed.
        if not allowed or entry.name in allowed:
            try:
                entry.load()()
            except Exception as error:  # noqa: BLE001 - a plugin may raise anything
                found = f"{type(error).__name__}: {error}"
                failures.append(failure("interface.plugin_raises", entry.value, "loads", found, "uninstall or mend it"))
    spec, why = contract.find_spec(architectures=[wanted["architecture"]], isa=wanted["isa"])
    if spec is None:
        where = f"find_spec({wanted['architecture']}, {wanted['isa']})"
        step = "pin a plugin and an SGLang that speak one version"
        failures.append(failure("interface.refused", where, "the plugin's spec", why, step))
        return {"entry_point": mine[0].value, "sglang_api_version": contract.MEGAKERNEL_API_VERSION}
    there = {name: field(spec, name) for name in wanted["fields"]}
    for name, value in wanted["fields"].items():
        if not (set(value) <= set(there[name]) if isinstance(value, list) else value == there[name]):
            failures.append(failure("patch.not_in_image", f"the plugin's {name}", value, there[name], "the patch did not take"))
    return {
        "entry_point": mine[0].value,
        "name": spec.name,
        "api_version": spec.api_version,
        "sglang_api_version": contract.MEGAKERNEL_API_VERSION,
        "isas": sorted(spec.requires.isas),
        **there,
    }


def compiled(expected: dict[str, Any], failures: Failures) -> dict[str, list[str]]:
    """GPU architectures in each compiled library of the plugin and of this project's kernels."""
    site = Path(expected["site_packages"])
    out: dict[str, list[str]] = {}
    for package, wanted in expected["architectures"].items():
        there: set[str] = set()
        for library in sorted((site / package).rglob("*.so")):
            # nvcc writes a target's name into each code object that it embeds.
            names = sorted({m.decode() for m in re.findall(rb"\bsm_[0-9]{2,3}[af]?\b", library.read_bytes())})
            out[str(library.relative_to(site))] = names
            there |= set(names)
        for name in wanted:
            if name not in there:
                found = ", ".join(sorted(there)) or "no code for any GPU"
                failures.append(failure("image.architecture", package, name, found, f"build {package} for {name}"))
    return out


def surroundings(expected: dict[str, Any], failures: Failures) -> None:
    """The user, the variables, and what must be gone."""
    try:
        user = pwd.getpwnam(expected["user"]).pw_uid
    except KeyError:
        user = -1
    if user != expected["uid"]:
        wanted = f"{expected['user']} with {expected['uid']}"
        failures.append(failure("image.user", "/etc/passwd", wanted, user, "check the base"))
    for name, bad in expected["forbidden"].items():
        value = os.environ.get(name)
        if value is not None and bad in (None, value):
            failures.append(failure("image.variable", name, "unset", value, "take it out of image.yml or the base"))
    for tool in BUILD_TOOLS:
        path = shutil.which(tool, path=f"{expected['prefix']}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        if path and tool not in expected["build_tools"]:
            step = "leave it out of the base, or declare it under build_tools"
            failures.append(failure("image.build_tool", tool, "not in the image", path, step))


def look() -> tuple[dict[str, Any], Failures]:
    """The manifest of this image, and everything that is not as it should be."""
    expected = json.loads((SHARE / "expected.json").read_text())
    failures: Failures = []
    files = tree(Path(expected["prefix"]))
    share = {n: h for n, h in tree(SHARE).items() if n != MANIFEST.name}
    manifest = {
        "schema_version": 1,
        "image": expected["image"],
        "simulated": expected["simulated"],
        "lock_sha256": expected["lock_sha256"],
        "python": ".".join(map(str, sys.version_info[:3])),
        "packages": python_packages(expected, files, failures),
        "debian": debian_packages(expected, failures),
        "plugin": plugin(expected, failures),
        "slots": expected["slots"],
        "architectures": compiled(expected, failures),
        "files": {"count": len(files), "sha256": digest(files)},
        "share_sha256": digest(share),
    }
    surroundings(expected, failures)
    return manifest, failures


def main(mode: str) -> int:
    """Exit status."""
    manifest, failures = look()
    if mode == "verify":
        recorded_one = json.loads(MANIFEST.read_text())
        for key in sorted(set(manifest) | set(recorded_one)):
            if manifest.get(key) != recorded_one.get(key):
                found = "something else in the image"
                failures.append(failure("image.manifest", f"manifest.json: {key}", "as built", found, "deliver the image again"))
    for one in failures:
        sys.stderr.write(f"b300kit-failure:{json.dumps(one)}\n")
    if failures:
        return 1
    if mode == "write":
        MANIFEST.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
    else:
        sys.stdout.write(json.dumps(manifest))
    return 0


if __name__ == "__main__":
    # What an import leaves behind (byte code of this very run) must not be in the image.
    sys.dont_write_bytecode = True
    sys.exit(main(sys.argv[1]))
