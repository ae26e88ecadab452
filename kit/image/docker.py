"""Builds with a docker daemon, through its API. Same files inside; the id differs from build to build, and the record says so."""

from __future__ import annotations

import io
import json
import posixpath
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import docker
import requests
import urllib3
from docker.errors import APIError, BuildError, ContainerError, DockerException, ImageNotFound

from kit.errors import ExitCode, KitError, failure
from kit.image.commands import Failed, log
from kit.image.context import Context, base_name
from kit.image.model import DebianBase, ImageLock, ImageSpec
from kit.image.places import Places

_TIMEOUT_S = 3600
_NO_NETWORK = "none"


class Docker:
    """The daemon that ``DOCKER_HOST`` names, or the machine's own."""

    name = "docker"
    reproducible = False

    def __init__(self, places: Places) -> None:
        self._places = places
        with _told("connect"):
            self._client = docker.from_env(timeout=_TIMEOUT_S)
            self._client.ping()

    def version(self) -> str:
        """For the record."""
        with _told("version"):
            return f"docker {self._client.version()['Version']}"

    def has(self, image: str) -> bool:
        """Whether the daemon has this image."""
        with _told("images"):
            try:
                self._client.images.get(image)
            except ImageNotFound:
                return False
            return True

    def leftovers(self) -> None:
        """The daemon removes its own: builds are asked to leave no container."""

    def build(self, context: Context, spec: ImageSpec, lock: ImageLock, archive: Path | None, cache: bool = True) -> str:
        """The id of the finished image. Raises KitError(APPLY_FAILED) with what the checker inside said, or the daemon."""
        if isinstance(spec.base, DebianBase):
            assert archive is not None and lock.base.digest is not None
            base, network = self._import_base(archive, lock.base.digest), _NO_NETWORK
        else:
            base, network = base_name(spec, lock), "default"
        recipe = context.folder / "Dockerfile"
        text = recipe.read_text()
        recipe.write_text(context.dockerfile(base))
        said: list[str] = []
        try:
            with _told("build"):
                stream = self._client.api.build(
                    path=str(context.folder), rm=True, forcerm=True, nocache=not cache, network_mode=network, decode=True,
                    tag=f"b300kit/{spec.name}:latest", buildargs={"SOURCE_DATE_EPOCH": str(spec.source_date_epoch)},
                )  # fmt: skip
                return self._follow(stream, said)
        except BuildError as error:
            raise Failed("image.build", ["docker", "build"], 1, "", "".join(said), ExitCode.APPLY_FAILED) from error
        finally:
            recipe.write_text(text)

    def _follow(self, stream: Iterator[dict[str, Any]], said: list[str]) -> str:
        image = ""
        for event in stream:
            line = str(event.get("stream") or event.get("error") or "")
            said.append(line)
            if line.startswith("Step"):
                log.info("%s", line.strip()[:160])
            if "error" in event:
                raise BuildError(line, iter(()))
            image = str(event.get("aux", {}).get("ID") or image)
        if not image:
            # The stream ended without a word: the daemon went away in the middle.
            raise DockerException("the daemon ended the build without an image")
        return image.removeprefix("sha256:")

    def _import_base(self, archive: Path, digest: str) -> str:
        tag = digest.removeprefix("sha256:")[:32]
        name = f"b300kit-base:{tag}"
        if not self.has(name):
            with _told("import"):
                self._client.api.import_image_from_file(str(archive), repository="b300kit-base", tag=tag)
        return name

    def read(self, image: str, path: str) -> bytes:
        """A file of an image."""
        with _told("read"):
            container = self._client.containers.create(image, command=["none"])
            try:
                stream, _ = container.get_archive(path)
                with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as archive:
                    file = archive.extractfile(archive.getmembers()[0])
                    assert file is not None
                    return file.read()
            finally:
                container.remove(force=True)

    def run_inside(self, image: str, command: list[str]) -> tuple[str, str]:
        """(standard output, standard error) of a command in an image, without network; raises :class:`Failed`."""
        with _told("run"):
            container = self._client.containers.create(image, entrypoint=command, network_disabled=True, user="0:0")
            try:
                container.start()
                status = int(container.wait(timeout=_TIMEOUT_S)["StatusCode"])
                out, err = (container.logs(stdout=o, stderr=not o).decode(errors="replace") for o in (True, False))
            except ContainerError as error:
                raise Failed("image.inside", command[:2], 1, "", str(error), ExitCode.APPLY_FAILED) from error
            finally:
                container.remove(force=True)
        if status != 0:
            raise Failed("image.inside", command[:2], status, out, err, ExitCode.APPLY_FAILED)
        return out, err

    def configuration(self, image: str) -> bytes:
        """The image's configuration document, whose hash is its id."""
        with self._saved(image) as archive:
            return _member(archive, f"{image}.json").read()

    @contextmanager
    def layers(self, image: str) -> Iterator[Path]:
        """A folder of the image's uncompressed layers, each under its hash in hex; gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self._places.cache, prefix="layers-") as scratch:
            with self._saved(image) as archive:
                files = json.load(_member(archive, "manifest.json"))[0]["Layers"]
                names = json.load(_member(archive, f"{image}.json"))["rootfs"]["diff_ids"]
                for name, file in zip(names, files, strict=True):
                    with (Path(scratch) / name.removeprefix("sha256:")).open("wb") as target:
                        shutil.copyfileobj(_member(archive, file), target)
            yield Path(scratch)

    @contextmanager
    def _saved(self, image: str) -> Iterator[tarfile.TarFile]:
        with tempfile.NamedTemporaryFile(dir=self._places.cache, prefix="saved-") as file:
            with _told("save"):
                for data in self._client.images.get(image).save():
                    file.write(data)
            file.seek(0)
            with tarfile.open(fileobj=file) as archive:
                yield archive


def _member(archive: tarfile.TarFile, name: str) -> IO[bytes]:
    """A file of an archive; the daemon saves a layer that it has twice as a link."""
    member = archive.getmember(name)
    if member.issym():
        member = archive.getmember(posixpath.normpath(posixpath.join(posixpath.dirname(name), member.linkname)))
    file = archive.extractfile(member)
    assert file is not None
    return file


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Every way in which a daemon fails, as one failure that says what was asked of it."""
    try:
        yield
    except BuildError:
        raise
    except (DockerException, APIError, requests.exceptions.RequestException, urllib3.exceptions.HTTPError) as error:
        found = " ".join(str(error).split())[:400]
        step = "start it (systemctl start docker), set DOCKER_HOST, or use --builder buildah"
        told = failure("image.daemon", f"docker daemon: {what}", "an answer", found, step)
        raise KitError(told, ExitCode.UNREACHABLE if what == "connect" else ExitCode.APPLY_FAILED) from error
