#!/usr/bin/python3
"""Makes a root directory of an image's compressed layers, whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

DOCUMENTATION = r"""
module: image_tree
short_description: Make a root directory of an image's layers, whole or not at all
description:
  - Each part is compared with its hash before anything is unpacked; one that differs is removed, so that it is sent again.
  - With V(docker) as O(runtime) the whole is given to the host's daemon, which must then name it by the same id.
  - Layers are unpacked beside their place. Each must have the hash that the configuration names, and the configuration the hash
    that is the image's id; only then is the whole renamed into place.
options:
  folder:
    description: Where images lie.
    type: path
    required: true
  image:
    description: The image's id, in hex.
    type: str
    required: true
  configuration:
    description: Its configuration document in base64, so that no template engine takes its braces for its own.
    type: str
    required: true
  layers:
    description: Layers, lowest first; V(diff_id), V(parts), V(whiteouts).
    type: list
    elements: dict
    required: true
  runtime:
    description: Where the image goes; a root directory, or the host's docker daemon.
    type: str
    choices: [rootdir, docker]
    default: rootdir
  files:
    description: Documents beside the image; V(name), V(content) in base64.
    type: list
    elements: dict
    default: []
  remove:
    description: Images to remove.
    type: list
    elements: str
    default: []
  keep_layers:
    description: Layers whose parts stay; when none is given all stay.
    type: list
    elements: str
    default: []
author: b300kit
"""

EXAMPLES = r"""
- name: Put an image in place
  image_tree:
    folder: /var/lib/b300kit/images
    image: "{{ image_id }}"
    configuration: "{{ image_configuration }}"
    layers: "{{ image_layers }}"
"""

RETURN = r"""
image_id:
  description: The id as computed here, from the configuration and the layers.
  returned: always
  type: str
removed:
  description: Images that were removed.
  returned: always
  type: list
  elements: str
"""

CHUNK = 1024 * 1024


class Refused(Exception):
    """The image cannot be put in place; the text says why."""


def part_files(folder: Path, layer: dict[str, Any]) -> list[Path]:
    """The parts of a layer, in order."""
    return [folder / ".parts" / layer["diff_id"] / part["name"] for part in layer["parts"]]


def check_parts(folder: Path, layers: list[dict[str, Any]]) -> None:
    """Raises Refused naming every part that is not what it should be; those are removed."""
    wrong = []
    for layer in layers:
        for part, path in zip(layer["parts"], part_files(folder, layer), strict=True):
            try:
                with path.open("rb") as file:
                    found = hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else _sha256(file)
            except FileNotFoundError:
                wrong.append(f"{path} is absent")
                continue
            if found != part["sha256"]:
                path.unlink()
                wrong.append(f"{path} has sha256 {found}, not {part['sha256']}")
    if wrong:
        raise Refused("; ".join(wrong[:3]) + (f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""))


def _sha256(file: Any) -> str:
    whole = hashlib.sha256()
    while data := file.read(CHUNK):
        whole.update(data)
    return whole.hexdigest()


def unpacked(paths: list[Path]) -> Iterator[bytes]:
    """The uncompressed bytes of a layer."""
    expand = zlib.decompressobj(31)
    for path in paths:
        with path.open("rb") as file:
            while data := file.read(CHUNK):
                yield expand.decompress(data)
    yield expand.flush()


def clear(root: Path, names: list[str]) -> None:
    """Remove what a layer hides: a path, or with ``/*`` all that a folder holds."""
    for name in names:
        place = root / name.removesuffix("*").rstrip("/")
        if root.resolve() not in (place.parent.resolve(), *place.parent.resolve().parents):
            raise Refused(f"whiteout {name} leaves the image")
        gone = list(place.iterdir()) if name.endswith("*") and place.is_dir() else [place]
        for path in gone:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def lay(root: Path, folder: Path, layer: dict[str, Any]) -> None:
    """Unpack one layer over those below it. Raises Refused when its bytes are not what its name says."""
    clear(root, layer["whiteouts"])
    command = ["tar", "--extract", "--numeric-owner", "--same-permissions", "--exclude=.wh.*", "--directory", str(root)]
    whole = hashlib.sha256()
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin and process.stderr
    try:
        for data in unpacked(part_files(folder, layer)):
            whole.update(data)
            process.stdin.write(data)
        process.stdin.close()
    except BrokenPipeError:
        pass
    said = process.stderr.read().decode(errors="replace").strip()
    if process.wait() != 0:
        raise Refused(f"tar: {said[-400:]}")
    if whole.hexdigest() != layer["diff_id"]:
        raise Refused(f"a layer has sha256 {whole.hexdigest()}, not {layer['diff_id']}")


def check_id(image: str, configuration: bytes, layers: list[dict[str, Any]]) -> str:
    """The id as computed here. Raises Refused when the configuration or its list of layers is another."""
    found = hashlib.sha256(configuration).hexdigest()
    named = [name.partition(":")[2] for name in json.loads(configuration)["rootfs"]["diff_ids"]]
    if found != image:
        raise Refused(f"the configuration has sha256 {found}, not {image}")
    if named != [layer["diff_id"] for layer in layers]:
        raise Refused("the configuration names other layers than were sent")
    return found


def put(folder: Path, options: dict[str, Any]) -> None:
    """Unpack into a folder of its own, then rename."""
    target, partial = folder / options["image"], folder / f".partial-{options['image']}"
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        if options.get("runtime") == "docker":
            load(folder, options)
        else:
            (partial / "rootfs").mkdir()
            for layer in options["layers"]:
                lay(partial / "rootfs", folder, layer)
        for file in [{"name": "image.json", "content": options["configuration"]}, *options["files"]]:
            (partial / Path(file["name"]).name).write_bytes(base64.b64decode(file["content"]))
        os.sync()
        if target.exists():
            shutil.rmtree(target)
        partial.rename(target)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


class Chain:
    """Files read as one."""

    def __init__(self, paths: list[Path]) -> None:
        self._paths = list(paths)
        self._file: Any = None

    def read(self, size: int) -> bytes:
        """Up to ``size`` bytes; empty at the end of the last file."""
        while True:
            if self._file is None:
                if not self._paths:
                    return b""
                self._file = self._paths.pop(0).open("rb")
            data: bytes = self._file.read(size)
            if data:
                return data
            self._file.close()
            self._file = None


def docker(*words: str) -> str:
    """What the docker command prints. Raises Refused with what it said."""
    done = subprocess.run(["docker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(f"docker {words[0]}: {done.stderr.strip()[-400:]}")
    return done.stdout.strip()


def in_daemon(image: str) -> bool:
    """Whether the daemon has an image of this id."""
    return f"sha256:{image}" in docker("image", "ls", "--all", "--no-trunc", "--quiet").split()


def load(folder: Path, options: dict[str, Any]) -> None:
    """Give the compressed layers to the daemon as they are. Raises Refused when it then names the image by another id."""
    image = options["image"]
    names = [f"{layer['diff_id']}.tar.gz" for layer in options["layers"]]
    manifest = [{"Config": f"{image}.json", "RepoTags": None, "Layers": names}]
    process = subprocess.Popen(
        ["docker", "load", "--quiet"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin and process.stderr
    try:
        with tarfile.open(fileobj=process.stdin, mode="w|") as archive:
            for name, data in {"manifest.json": json.dumps(manifest).encode(), f"{image}.json": configuration(options)}.items():
                archive.addfile(entry(name, len(data)), io.BytesIO(data))
            for name, layer in zip(names, options["layers"], strict=True):
                size = sum(part["bytes"] for part in layer["parts"])
                archive.addfile(entry(name, size), Chain(part_files(folder, layer)))  # type: ignore[arg-type]
        process.stdin.close()
    except BrokenPipeError:
        pass
    said = process.stderr.read().decode(errors="replace").strip()
    if process.wait() != 0:
        raise Refused(f"docker load: {said[-400:]}")
    if not in_daemon(image):
        raise Refused("the daemon loaded an image of another id")


def entry(name: str, size: int) -> tarfile.TarInfo:
    """An archive's entry."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member


def configuration(options: dict[str, Any]) -> bytes:
    """The image's configuration document."""
    return base64.b64decode(options["configuration"])


def prune(folder: Path, images: list[str], keep: list[str], runtime: str = "rootdir") -> list[str]:
    """Remove images, and parts of layers that nobody keeps."""
    gone = []
    for image in images:
        if len(image) == 64 and (folder / image).is_dir():
            if runtime == "docker" and in_daemon(image):
                docker("image", "rm", image)
            shutil.rmtree(folder / image)
            gone.append(image)
    parts = folder / ".parts"
    for layer in parts.iterdir() if keep and parts.is_dir() else []:
        if layer.name not in keep:
            shutil.rmtree(layer)
    return gone


def main() -> None:
    """The module."""
    rows = {"type": "list", "elements": "dict"}
    names = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(
        argument_spec={
            "folder": {"type": "path", "required": True},
            "image": {"type": "str", "required": True},
            "configuration": {"type": "str", "required": True},
            "layers": {**rows, "required": True},
            "runtime": {"type": "str", "choices": ["rootdir", "docker"], "default": "rootdir"},
            "files": {**rows, "default": []},
            "remove": names,
            "keep_layers": names,
        },
        supports_check_mode=True,
    )
    options = module.params
    folder = Path(options["folder"])
    image_file = folder / options["image"] / "image.json"
    try:
        found = check_id(options["image"], configuration(options), options["layers"])
        there = image_file.is_file() and hashlib.sha256(image_file.read_bytes()).hexdigest() == found
        there = there and (options["runtime"] == "rootdir" or in_daemon(found))
        removed: list[str] = []
        if not module.check_mode:
            if not there:
                check_parts(folder, options["layers"])
                put(folder, options)
            removed = prune(folder, options["remove"], options["keep_layers"], options["runtime"])
    except (Refused, OSError, zlib.error) as error:
        module.fail_json(msg=f"image {options['image'][:12]}: {error}")
    module.exit_json(changed=not there or bool(removed), image_id=found, removed=removed)


if __name__ == "__main__":
    main()
