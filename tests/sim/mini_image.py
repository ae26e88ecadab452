"""A small image for tests of building and delivery: the real template, base, patches, kernels and checks; SGLang's real contract
files in a package of their own instead of gigabytes. What the whole image adds is seen by ``make bench-image``.
"""

from __future__ import annotations

import base64
import hashlib
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

from kit.image import base, load, sources, wheels
from kit.image.buildah import Buildah
from kit.image.context import Context, prepared
from kit.image.model import ImageLock, ImageSpec, LockedBase, LockedPlugin, Wheel
from kit.image.places import Places
from kit.image.proof import manifest_of
from kit.image.record import Built, keep
from kit.image.render import lock_sha256
from kit.patch.contract import contract_dir
from kit.patch.load import load_series
from kit.paths import cache_dir
from tests.standins.plugin_standins import INIT, PYPROJECT
from tests.standins.plugin_standins import spec as plugin_spec

LAUNCH = """\
import argparse
if __name__ == "__main__":
    argparse.ArgumentParser(prog="sglang.launch_server", description="a small stand-in").parse_args()
"""


def wheel(folder: Path, name: str, version: str, files: dict[str, str], entry: str = "") -> Wheel:
    """Write a package file; the same content gives the same bytes."""
    info = f"{name}-{version}.dist-info"
    whole = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entry:
        whole[f"{info}/entry_points.txt"] = f"[sglang.srt.plugins]\n{entry}\n"
    rows = [
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b'=').decode()},{len(text)}"
        for path, text in whole.items()
    ]
    path = folder / f"{name}-{version}-py3-none-any.whl"
    path.unlink(missing_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for member, text in {**whole, f"{info}/RECORD": "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"}.items():
            entry = zipfile.ZipInfo(member)
            entry.external_attr = (0o100755 if "/scripts/" in member else 0o100644) << 16
            archive.writestr(entry, text)
    return Wheel(version=version, file=path.name, sha256=hashlib.sha256(path.read_bytes()).hexdigest())


@dataclass(frozen=True)
class Mini:
    """An image's folder, with caches of its own."""

    places: Places
    folder: Path
    spec: ImageSpec
    lock: ImageLock

    @property
    def builder(self) -> Buildah:
        return Buildah(self.places)

    def base(self) -> Path:
        return base.archive(self.places, self.spec.base, self.lock.base.digest, self.spec.source_date_epoch)[0]  # type: ignore[arg-type]

    def build(self, cache: bool = True) -> str:
        """The image's id."""
        with prepared(self.places, self.folder, self.spec, self.lock) as context:
            return self.builder.build(context, self.spec, self.lock, self.base(), cache)

    def built(self) -> Built:
        """Built, recorded and with its documents' source, as build-image does."""
        with prepared(self.places, self.folder, self.spec, self.lock) as context:
            image = self.builder.build(context, self.spec, self.lock, self.base())
            found = self._built(image, context)
        keep(self.places, found)
        return found

    def _built(self, image: str, context: Context) -> Built:
        return Built(
            profile=self.spec.name,
            image_id=image,
            builder="buildah",
            builder_version=self.builder.version(),
            reproducible=True,
            inputs_sha256=context.inputs_sha256,
            lock_sha256=lock_sha256(self.lock),
            base="test",
            seconds=0.0,
            manifest=manifest_of(self.builder, image),
        )

    def with_packages(self, **more: Wheel | None) -> Mini:
        """Other packages in the lock; None takes one out."""
        packages = {**self.lock.packages, **{name.replace("_", "-"): one for name, one in more.items()}}
        found = {name: one for name, one in packages.items() if one is not None}
        return replace(self, lock=self.lock.model_copy(update={"packages": found}))

    def sglang(self, **edits: str) -> Wheel:
        """SGLang's contract as a package, with text replaced in it."""
        return sglang_wheel(self.places.wheels, edits)


def contract_files() -> dict[str, str]:
    """The real files of SGLang's plugin contract."""
    declared = load_series(sources.series_folder(load.load_spec(load.folder_of("sim")))).declared.contract
    found = contract_dir(declared, cache_dir())
    assert found is not None, "the SGLang wheel is neither in the cache nor to be downloaded"
    return {file.path: (found / file.path).read_text() for file in declared.files}


def sglang_wheel(folder: Path, edits: dict[str, str]) -> Wheel:
    """SGLang's contract as a package of SGLang's name and version."""
    files = {**contract_files(), "sglang/launch_server.py": LAUNCH}
    for old, new in edits.items():
        assert any(old in text for text in files.values()), old
        files = {path: text.replace(old, new) for path, text in files.items()}
    return wheel(folder, "sglang", "0.5.23", files)


def make(root: Path, plugin: str = "", name: str = "sim") -> Mini:
    """An image below ``root``; ``plugin`` is the stand-in's spec module."""
    real_folder = load.folder_of("sim")
    real, lock = load.load_spec(real_folder), load.load_lock(real_folder)
    shared, places = Places.here(), Places(root / "cache" / "image")
    for folder in (places.bases, places.wheels):
        folder.mkdir(parents=True, exist_ok=True)
    assert lock.base.digest is not None
    archive, _ = base.archive(shared, real.base, lock.base.digest, real.source_date_epoch)  # type: ignore[arg-type]
    _link(archive, places.bases / archive.name)
    needed = {"msgspec": lock.packages["msgspec"]}
    tools = {key: value for key, value in lock.tools.items() if value is not None}
    for path in wheels.fetch(shared, {**tools, **needed}, real.python, real.glibc).values():  # type: ignore[dict-item]
        _link(path, places.wheels / path.name)
    folder = root / "images" / "sim"
    _plugin(folder / "plugin", plugin or plugin_spec())
    spec = real.model_copy(update={"stand_ins": None, "simulated": False, "environment": {"SGLANG_PLUGINS": "nvidia_megakernel"}})
    spec = spec.model_copy(update={"plugin": spec.plugin.model_copy(update={"package": "mega"})})
    locked = ImageLock(
        schema_version=1,
        image=name,
        base=LockedBase(digest=lock.base.digest, packages=lock.base.packages),
        packages={**needed, "sglang": sglang_wheel(places.wheels, {})},
        tools=lock.tools,
        plugin=LockedPlugin(
            commit=None,
            tree_sha256=sources.sha256_tree(folder / "plugin"),
            series_sha256=sources.series_sha256(spec),
            slots=None,
        ),
        stand_ins_sha256=None,
        kernels_version=sources.kernels_version(),
    )
    return Mini(places, folder, spec, locked)


def _plugin(folder: Path, spec: str) -> None:
    (folder / "mega").mkdir(parents=True)
    build = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n\n'
    (folder / "pyproject.toml").write_text(f'{build}{PYPROJECT}\n[tool.setuptools]\npackages = ["mega"]\n')
    (folder / "mega" / "__init__.py").write_text(INIT)
    (folder / "mega" / "spec.py").write_text(spec)


def _link(source: Path, target: Path) -> None:
    if not target.exists():
        os.link(source, target) if source.stat().st_dev == target.parent.stat().st_dev else target.write_bytes(
            source.read_bytes()
        )
