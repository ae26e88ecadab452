"""Packs the operators and the built library into one wheel; the standard library only.

``python -m kernels.wheel --out FOLDER [--arch sm_90a,sm_103a]`` prints the wheel's path. Without ``--arch`` there is no compiled
code in it: the operators are defined and have their references, and refuse to run on a GPU.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import sys
import zipfile
from pathlib import Path

from . import build

NAME, VERSION = "b300kit_kernels", "0.1.0"
_LEFT_OUT = (
    "test_",
    "bench.py",
    "conftest.py",
    "device_run.py",
    "exercise.py",
    "tasks_api.py",
    "testing.py",
    "wheel.py",
    "build.py",
)


def sources(root: Path = build.HERE) -> list[Path]:
    """The Python files that ship: operators, references, common, launch choices; no tests, benches or build code."""
    found = [p for p in sorted(root.rglob("*.py")) if not any(p.name.startswith(x) for x in _LEFT_OUT)]
    return [p for p in found if p.relative_to(root).parts[0] not in ("peers", "chain", "results")]


def make(library: Path | None, out: Path) -> Path:
    """Writes the wheel for ``library`` (None: no compiled code) into ``out`` and returns it. Same input, same bytes."""
    out.mkdir(parents=True, exist_ok=True)
    tag = "py3-none-any" if library is None else "py3-none-linux_x86_64"
    path = out / f"{NAME}-{VERSION}-{tag}.whl"
    info = f"{NAME}-{VERSION}.dist-info"
    files = {f"{NAME}/{p.relative_to(build.HERE)}": p.read_bytes() for p in sources()}
    if library is not None:
        files[f"{NAME}/lib/{build.LIBRARY}"] = library.read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: {NAME.replace('_', '-')}\nVersion: {VERSION}\n"
        "Requires-Python: >=3.11\nRequires-Dist: numpy\n"
    ).encode()
    pure = str(library is None).lower()
    files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nGenerator: b300kit\nRoot-Is-Purelib: {pure}\nTag: {tag}\n".encode()
    files[f"{info}/entry_points.txt"] = f"[sglang.srt.plugins]\n{NAME} = {NAME}.plugin:register\n".encode()
    lines = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(data)}")
    files[f"{info}/RECORD"] = ("\n".join([*lines, f"{info}/RECORD,,"]) + "\n").encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, data)
    return path


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m kernels.wheel")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--arch", default="")
    options = parser.parse_args()

    def say(line: str) -> None:
        sys.stderr.write(f"{line}\n")

    library = build.build(build.architectures(options.arch), say=say) if options.arch else None
    sys.stdout.write(f"{make(library, options.out.absolute())}\n")


if __name__ == "__main__":
    main()
