"""Builds with buildah: no daemon, a storage of its own, and the same ID each time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kit.errors import ExitCode
from kit.image.commands import Failed, run, run_both, run_steps
from kit.image.context import Context, base_name
from kit.image.model import DebianBase, ImageLock, ImageSpec
from kit.image.places import Places

_BUILD_S = 7200.0
_SHORT_S = 900.0
_CUT_OFF = ("unshare", "--net", "--")
"""chroot isolation shares the machine's network, so all of buildah is put into a network namespace without any."""


class Buildah:
    """One storage's images."""

    name = "buildah"
    reproducible = True

    def __init__(self, places: Places) -> None:
        graph, runtime = places.storage()
        graph.mkdir(parents=True, exist_ok=True)
        self._places = places
        # A short path: it holds sockets. Nothing in it outlives a build.
        runtime.mkdir(parents=True, exist_ok=True)
        self._global = ["--root", str(graph), "--runroot", str(runtime), "--storage-driver=overlay"]

    def _argv(self, *words: str | Path) -> list[str]:
        return ["buildah", *self._global, *map(str, words)]

    def _run(self, *words: str | Path, timeout_s: float = _SHORT_S) -> str:
        return run(self._argv(*words), "image.builder", timeout_s)

    def version(self) -> str:
        """For the record."""
        return self._run("--version").strip()

    def has(self, image: str) -> bool:
        """Whether an image of this id or name is in the storage, whole."""
        try:
            self._run("inspect", "--type", "image", "--format", "{{.FromImageID}}", image)
        except Failed:
            return False
        return True

    def import_base(self, archive: Path, digest: str, epoch: int) -> str:
        """The Debian tree as an image; its id. Done once for each digest."""
        name = f"localhost/b300kit-base:{digest.removeprefix('sha256:')[:32]}"
        if not self.has(name):
            container = self._run("from", "scratch").strip()
            try:
                self._run("add", "--quiet", container, archive, "/")
                words = ["--quiet", "--rm", "--timestamp", str(epoch), "--identity-label=false", container, name]
                self._run("commit", *words)
            except BaseException:
                self._forget(container)
                raise
        return name

    def build(self, context: Context, spec: ImageSpec, lock: ImageLock, archive: Path | None, cache: bool = True) -> str:
        """The id of the finished image. Raises KitError(APPLY_FAILED) with what the checker inside said, or buildah."""
        if isinstance(spec.base, DebianBase):
            assert archive is not None and lock.base.digest is not None
            base = self.import_base(archive, lock.base.digest, spec.source_date_epoch)
        else:
            base = base_name(spec, lock)
        with tempfile.TemporaryDirectory(dir=self._places.cache, prefix="build-") as scratch:
            recipe, told = Path(scratch) / "Dockerfile", Path(scratch) / "id"
            recipe.write_text(context.dockerfile(base))
            words = ["bud", "--isolation", "chroot", "--network", "host", "--timestamp", str(spec.source_date_epoch)]
            words += ["--layers" if cache else "--no-cache", "--identity-label=false", "--no-hosts", "--http-proxy=false"]
            words += ["--pull=false", "--iidfile", str(told), "--file", str(recipe), str(context.folder)]
            environment = {"SOURCE_DATE_EPOCH": str(spec.source_date_epoch)}
            cut = _CUT_OFF if isinstance(spec.base, DebianBase) else ()
            run_steps([*cut, *self._argv(*words)], "image.build", _BUILD_S, environment)
            image = told.read_text().strip().removeprefix("sha256:")
        self._run("tag", image, f"localhost/b300kit/{spec.name}:latest")
        return image

    def read(self, image: str, path: str) -> bytes:
        """A file of an image."""
        with self._container(image) as container:
            root = Path(self._run("mount", container).strip())
            return (root / path.lstrip("/")).read_bytes()

    def run_inside(self, image: str, command: list[str], timeout_s: float = _SHORT_S) -> tuple[str, str]:
        """(standard output, standard error) of a command in the image, without network; raises :class:`Failed`."""
        with self._container(image) as container:
            words = self._argv("run", "--isolation", "chroot", "--network", "host", container, "--", *command)
            return run_both([*_CUT_OFF, *words], "image.inside", timeout_s)

    def configuration(self, image: str) -> bytes:
        """The image's configuration document, whose hash is its id."""
        return self._run("inspect", "--type", "image", "--format", "{{.Config}}", image).rstrip("\n").encode()

    @contextmanager
    def layers(self, image: str) -> Iterator[Path]:
        """A folder of the image's uncompressed layers, each under its hash in hex; gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self._places.cache, prefix="layers-") as scratch:
            self._run("push", "--quiet", "--disable-compression", image, f"dir:{scratch}", timeout_s=_BUILD_S)
            yield Path(scratch)

    def pull(self, reference: str) -> str:
        """Fetch a published image; its digest. Raises KitError(UNREACHABLE, ``image.registry``)."""
        words = self._argv("pull", "--quiet", f"docker://{reference}")
        image = run(words, "image.registry", _BUILD_S, exit_code=ExitCode.UNREACHABLE).split()[-1]
        return self._run("inspect", "--type", "image", "--format", "{{.FromImageDigest}}", image).strip()

    def ask(self, image: str, script: str, arguments: list[str]) -> str:
        """Standard output of a shell script in an image, with this machine's network."""
        with self._container(image) as container:
            words = self._argv("run", "--isolation", "chroot", "--network", "host", container, "--", "sh", "-ec", script, "sh")
            return run([*words, *arguments], "image.registry", _SHORT_S, exit_code=ExitCode.UNREACHABLE)

    def leftovers(self) -> None:
        """Remove working containers of builds that were killed. The caller holds the build lock."""
        self._run("rm", "--all")

    def working_containers(self) -> list[str]:
        """Ids of containers that a build has, or left."""
        return self._run("containers", "--quiet").split()

    @contextmanager
    def _container(self, image: str) -> Iterator[str]:
        container = self._run("from", "--pull-never", image).strip()
        try:
            yield container
        finally:
            self._forget(container)

    def _forget(self, container: str) -> None:
        self._run("rm", container)
