"""A site-packages folder like an image's: SGLang's real plugin contract, a plugin, and the checker's expectations."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kit.errors import Failure
from kit.image import inside
from kit.image.proof import inside_failures
from tests.unit.patch.conftest import contract, series  # noqa: F401

PLUGIN = """\
def register():
    from sglang.kernels.plugin_kernels.nvidia.spec import register as add
    add(architecture="DeepseekV4ForCausalLM", path="{package}.spec:SPEC")
"""
SPEC = """\
from sglang.kernels.plugin_kernels.nvidia.spec import Feature, MegakernelSpec, Numerics, NumericsKind, Requirements
SPEC = MegakernelSpec(
    name="{package}", requires=Requirements(isas=frozenset({{"sm_103"}}), tp_sizes=frozenset({{4}}), resident_blocks={blocks}),
    features=frozenset({{Feature.SPECULATIVE_DECODING{more}}}), numerics=Numerics(NumericsKind.BITWISE), max_rows=24,
    build=print, api_version={version},
)
"""


@dataclass
class Image:
    """A folder that looks like an image from inside, as far as one part of the checker looks."""

    site: Path
    contract: Path
    expected: dict[str, Any]
    environment: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, files: dict[str, str], entry: str = "", version: str = "1.0") -> None:
        """Install a distribution with a RECORD that is right."""
        info = f"{name}-{version}.dist-info"
        files = {**files, f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"}
        if entry:
            files[f"{info}/entry_points.txt"] = f"[sglang.srt.plugins]\n{entry}\n"
        rows = []
        for path, text in files.items():
            place = self.site / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            rows.append(f"{path},sha256={digest},{len(text)}")
        (self.site / info / "RECORD").write_text("\n".join([*rows, f"{info}/RECORD,,"]) + "\n")

    def plugin(
        self, package: str = "mega", blocks: int = 148, offload: bool = True, version: int = 1, name: str = "nvidia_megakernel"
    ) -> None:
        """A plugin against the contract."""
        more = ", Feature.KV_OFFLOAD" if offload else ""
        files = {
            f"{package}/__init__.py": PLUGIN.format(package=package),
            f"{package}/spec.py": SPEC.format(package=package, blocks=blocks, more=more, version=version),
        }
        self.add(package, files, f"{name} = {package}:register")

    def ask(self, call: str) -> tuple[Any, list[Failure]]:
        """Run one of the checker's functions in a process that has this folder as its only packages."""
        checker = Path(inside.__file__).parent
        script = (
            f"import sys, json; sys.path[:0] = [{str(checker)!r}, {str(self.contract)!r}, {str(self.site)!r}]\n"
            f"import checker as c\nexpected = json.loads({json.dumps(self.expected)!r}); failures = []\n"
            f"from pathlib import Path\nanswer = c.{call}\n"
            "for f in failures: sys.stderr.write('b300kit-failure:' + json.dumps(f) + chr(10))\n"
            "print(json.dumps(answer))\n"
        )
        environment = {"PATH": os.environ["PATH"], **self.environment}
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), inside_failures(done.stderr)


@pytest.fixture
def image(tmp_path: Path, contract: Path) -> Callable[..., Image]:  # noqa: F811
    """Makes one; keyword arguments are expectations."""

    def make(**expected: Any) -> Image:
        site = tmp_path / "prefix" / "lib" / "python3" / "site-packages"
        site.mkdir(parents=True)
        wanted = {
            "prefix": str(tmp_path / "prefix"),
            "site_packages": str(site),
            "plugin": {
                "entry_point": "nvidia_megakernel",
                "architecture": "DeepseekV4ForCausalLM",
                "isa": "sm_103",
                "fields": {"requires.resident_blocks": 148, "features": ["KV_OFFLOAD"]},
            },
            "packages": {},
            "own": [],
            "forbidden": {"SGLANG_SIMULATE_ACC_LEN": None, "NCCL_NVLS_ENABLE": "0"},
            "build_tools": [],
            "user": "root",
            "uid": 0,
        }
        return Image(site, contract, {**wanted, **expected})

    return make
