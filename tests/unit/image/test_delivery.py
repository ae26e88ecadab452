"""Layers in parts, and the module that puts them together on a host: whole or not at all."""

from __future__ import annotations

import base64
import gzip
import hashlib
import importlib.util
import io
import json
import tarfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kit import paths
from kit.errors import KitError
from kit.image import delivery, oci
from kit.image.delivery import Delivery, Layer, Part
from kit.image.push import There, missing, rollback_of, to_remove
from kit.image.start import in_root


def module() -> ModuleType:
    """roles/image/library/image_tree.py, as Ansible would load it."""
    spec = importlib.util.spec_from_file_location("image_tree", paths.ROOT / "roles" / "image" / "library" / "image_tree.py")
    assert spec and spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


TREE = module()


def tar(files: dict[str, str]) -> bytes:
    """A layer: a name ending in / is a folder, one with -> in its text a link."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.mode = 0o755 if name.endswith("/") else 0o640
            if name.endswith("/"):
                member.type = tarfile.DIRTYPE
            elif text.startswith("-> "):
                member.type, member.linkname = tarfile.SYMTYPE, text[3:]
            member.size = len(text) if member.type == tarfile.REGTYPE else 0
            archive.addfile(member, io.BytesIO(text.encode()) if member.size else None)
    return out.getvalue()


@pytest.fixture
def packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, dict[str, Any]]:
    """(a host's folder of images with all parts, the module's options) of an image with three layers in small parts."""
    monkeypatch.setattr(delivery, "PART_BYTES", 100)
    folder = tmp_path / "images"
    layers = []
    for number, files in enumerate(
        [
            {"etc/": "", "etc/a": "old", "etc/b": "kept", "opt/": "", "opt/x": "1", "opt/y": "2", "link": "-> /etc/passwd"},
            {
                "etc/a": "new",
                "etc/.wh.b": "",
                "usr/": "",
                "usr/big": "".join(hashlib.sha256(bytes([n])).hexdigest() for n in range(20)),
            },
            {"opt/": "", "opt/.wh..wh..opq": "", "opt/z": "3"},
        ]
    ):
        raw = tar(files)
        blob = tmp_path / f"blob{number}"
        blob.write_bytes(raw)
        layers.append(delivery._pack(folder / ".parts", hashlib.sha256(raw).hexdigest(), blob))
    configuration = json.dumps({"rootfs": {"diff_ids": [f"sha256:{layer.diff_id}" for layer in layers]}}).encode()
    options = {
        "folder": str(folder),
        "image": hashlib.sha256(configuration).hexdigest(),
        "configuration": base64.b64encode(configuration).decode(),
        "layers": [layer.model_dump(mode="json") for layer in layers],
        "files": [{"name": "note", "content": base64.b64encode(b"hello").decode()}],
    }
    return folder, options


def test_parts_put_together_are_the_image(packed: tuple[Path, dict[str, Any]]) -> None:
    folder, options = packed
    assert len(options["layers"][1]["parts"]) > 1
    TREE.check_parts(folder, options["layers"])
    TREE.put(folder, options)
    root = folder / options["image"] / "rootfs"
    assert (root / "etc" / "a").read_text() == "new"
    assert not (root / "etc" / "b").exists(), "hidden by the second layer"
    assert sorted(path.name for path in (root / "opt").iterdir()) == ["z"], "emptied by the third layer"
    assert (root / "link").readlink() == Path("/etc/passwd")
    assert (root / "etc" / "a").stat().st_mode & 0o777 == 0o640
    assert not list(root.rglob(".wh.*"))
    assert (folder / options["image"] / "note").read_bytes() == b"hello"
    assert not list(folder.glob(".partial-*"))


def test_a_tampered_part_is_named_removed_and_nothing_is_unpacked(packed: tuple[Path, dict[str, Any]]) -> None:
    folder, options = packed
    part = folder / ".parts" / options["layers"][1]["diff_id"] / "0001"
    part.write_bytes(bytes(reversed(part.read_bytes())))
    with pytest.raises(TREE.Refused, match=r"0001 has sha256"):
        TREE.check_parts(folder, options["layers"])
    assert not part.exists(), "so that the next run sends it again"
    assert not (folder / options["image"]).exists()


def test_a_layer_that_is_another_one_leaves_nothing(packed: tuple[Path, dict[str, Any]]) -> None:
    folder, options = packed
    first, second = options["layers"][0], options["layers"][1]
    wrong = {**first, "parts": second["parts"]}
    (folder / ".parts" / first["diff_id"]).rename(folder / ".parts" / "aside")
    (folder / ".parts" / second["diff_id"]).rename(folder / ".parts" / first["diff_id"])
    with pytest.raises(TREE.Refused, match="a layer has sha256"):
        TREE.put(folder, {**options, "layers": [wrong]})
    assert sorted(path.name for path in folder.iterdir()) == [".parts"]


@pytest.mark.parametrize("change", [lambda c: c.replace(b"rootfs", b"rootfz"), lambda c: c + b" "])
def test_another_configuration_is_not_the_image(packed: tuple[Path, dict[str, Any]], change: Any) -> None:
    _, options = packed
    other = change(base64.b64decode(options["configuration"]))
    with pytest.raises((TREE.Refused, KeyError)):
        TREE.check_id(options["image"], other, options["layers"])


def test_layers_in_another_order_are_not_the_image(packed: tuple[Path, dict[str, Any]]) -> None:
    _, options = packed
    with pytest.raises(TREE.Refused, match="other layers"):
        TREE.check_id(options["image"], base64.b64decode(options["configuration"]), options["layers"][::-1])


def test_a_whiteout_cannot_leave_the_image(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").write_text("keep")
    (tmp_path / "root" / "up").symlink_to(tmp_path)
    for name in ("../outside", "up/outside"):
        with pytest.raises(TREE.Refused, match="leaves the image"):
            TREE.clear(tmp_path / "root", [name])
    assert (tmp_path / "outside").exists()


def test_old_images_go_and_kept_layers_stay(packed: tuple[Path, dict[str, Any]]) -> None:
    folder, options = packed
    TREE.put(folder, options)
    keep = [options["layers"][0]["diff_id"]]
    assert TREE.prune(folder, [options["image"], "../../etc"], keep) == [options["image"]]
    assert [path.name for path in (folder / ".parts").iterdir()] == keep


def test_a_layer_with_other_bytes_than_its_name_is_not_packed(tmp_path: Path) -> None:
    blob = tmp_path / "blob"
    blob.write_bytes(tar({"a": "x"}))
    with pytest.raises(KitError, match=r"image\.layer"):
        delivery._pack(tmp_path / "layers", "0" * 64, blob)
    assert not list((tmp_path / "layers").iterdir())


def test_a_packed_layer_is_known_until_a_part_is_gone(tmp_path: Path) -> None:
    raw = tar({"a": "x"})
    (tmp_path / "blob").write_bytes(raw)
    name = hashlib.sha256(raw).hexdigest()
    assert delivery._packed(tmp_path / "layers", name) is None
    packed_one = delivery._pack(tmp_path / "layers", name, tmp_path / "blob")
    assert delivery._packed(tmp_path / "layers", name) == packed_one
    assert gzip.decompress((tmp_path / "layers" / name / "0000").read_bytes()) == raw
    (tmp_path / "layers" / name / "0000").unlink()
    assert delivery._packed(tmp_path / "layers", name) is None


@pytest.mark.parametrize(
    ("name", "hidden"),
    [("a/b", None), ("./a/.wh.b", "a/b"), (".wh.b", "b"), ("a/.wh..wh..opq", "a/*"), (".wh..wh..opq", "*"), ("a.wh.b", None)],
)
def test_what_a_member_hides(name: str, hidden: str | None) -> None:
    assert oci.whiteout(name) == hidden


def there(**values: Any) -> There:
    return There(**{"images": {}, "present": False, "parts": {}, "in_use": (), "free_bytes": 0, **values})


def test_only_missing_parts_are_sent() -> None:
    parts = tuple(Part(name=f"{n:04d}", bytes=1, sha256="0" * 64) for n in range(3))
    layer = Layer(diff_id="a" * 64, bytes=3, parts=parts, whiteouts=())
    wanted = Delivery(image_id="b" * 64, profile="sim", runtime="rootdir", user="engine", configuration="{}", layers=(layer,))
    assert [p.name for _, p in missing(wanted, there(parts={"a" * 64: ("0000", "0002")}))] == ["0001"]
    assert len(missing(wanted, there())) == 3


def test_what_runs_and_what_a_rollback_needs_is_never_removed() -> None:
    host = there(images={"new": 3.0, "before": 2.0, "running": 1.0, "old": 0.5}, in_use=("running",))
    assert rollback_of("new", host) == ("before",)
    assert to_remove("new", host, rollback_of("new", host)) == ("old",)
    assert to_remove("new", there(images={"old": 1.0}, in_use=None), ()) == (), "not known: nothing is removed"


def test_an_image_runs_as_its_own_user_with_its_variables_and_nothing_writable() -> None:
    words = in_root("/images/x/rootfs", "engine", ["A=1", "B=c d"], ["/bin/python", "-m", "x"])
    assert words[0] == "systemd-run"
    assert words[words.index("--") :] == ["--", "/bin/python", "-m", "x"]
    assert {"--property=User=engine", "--property=ProtectSystem=strict", "--setenv=A=1", "--setenv=B=c d"} <= set(words)
