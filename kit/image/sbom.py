"""The bill of materials of an image, in CycloneDX: what its own checker found installed, with the lock's hashes. Pure."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from cyclonedx.model import HashAlgorithm, HashType, Property
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

from kit.image.model import ImageLock, ImageSpec
from kit.image.record import Built
from kit.image.render import KEY

_SPACE = uuid.UUID("4c2f1b0e-6b0f-5b5e-9d5b-0b300b300b30")


def bill(built: Built, spec: ImageSpec, lock: ImageLock) -> str:
    """A CycloneDX 1.6 JSON document; the same image gives the same bytes."""
    manifest = built.manifest
    packages, debian = manifest["packages"], manifest["debian"]
    assert isinstance(packages, dict) and isinstance(debian, dict)
    suite = "bookworm" if spec.base.kind == "debian" else spec.base.reference
    whole = Component(
        name=spec.name,
        version=built.image_id,
        type=ComponentType.CONTAINER,
        bom_ref="image",
        description=spec.title,
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=built.image_id)],
        properties=[Property(name=f"{KEY}:{key}", value=str(manifest[key])) for key in ("lock_sha256", "simulated")],
    )
    parts = [_python(name, found["version"], lock) for name, found in sorted(packages.items())]
    parts += [_debian(name, version, suite) for name, version in sorted(debian.items())]
    made = datetime.fromtimestamp(spec.source_date_epoch, UTC)
    metadata = BomMetaData(component=whole, timestamp=made)
    bom = Bom(components=parts, metadata=metadata, serial_number=uuid.uuid5(_SPACE, built.image_id))
    bom.register_dependency(whole, parts)
    return JsonV1Dot6(bom).output_as_string(indent=1) + "\n"


def _python(name: str, version: str, lock: ImageLock) -> Component:
    wheel = lock.packages.get(name)
    return Component(
        name=name,
        version=version,
        bom_ref=f"python/{name}",
        purl=PackageURL("pypi", None, name, version),
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=wheel.sha256)] if wheel is not None else None,
        # This project's own parts and the plugin have no file on an index.
        properties=None if wheel is not None else [Property(name=f"{KEY}:own", value="true")],
    )


def _debian(name: str, version: str, suite: str) -> Component:
    purl = PackageURL("deb", "debian", name, version, {"distro": suite})
    return Component(name=name, version=version, bom_ref=f"debian/{name}", purl=purl)
