"""Stand-ins for NVIDIA's megakernel plugin: one project in many shapes, written against SGLang 0.5.23's public contract.

Nothing here is upstream's source, which is not known: each shape is a way in which a real plugin could write two settings.
``SHAPES`` maps a name to a :class:`Shape`; ``write(shape, folder)`` puts the tree on disk.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

APPLIES, ALREADY, CONFLICT, AMBIGUOUS = "applies", "already", "conflict", "ambiguous"

PYPROJECT = """\
[project]
name = "sgl-nvidia-mega"
version = "0.1.0"

[project.entry-points."sglang.srt.plugins"]
nvidia_megakernel = "mega:register"
"""
INIT = """\
def register():
    from sglang.kernels.plugin_kernels.nvidia.spec import register as add

    add(architecture="DeepseekV4ForCausalLM", path="mega.spec:SPEC")
"""
IMPORTS = "from sglang.kernels.plugin_kernels.nvidia.spec import Feature, MegakernelSpec, Numerics, NumericsKind, Requirements\n"
SETS = 'isas=frozenset({"sm_103"}), tp_sizes=frozenset({4})'
FEATURES = "frozenset({Feature.SPECULATIVE_DECODING, Feature.MULTI_NODE_TP})"
KERNEL = """\
// A kernel that must stay as it is, byte for byte.
#include "mega.cuh"
__global__ void step(float* x) { for (int i = blockIdx.x; i < 4096; i += gridDim.x) x[i] *= 2.0f; }
"""


def spec(blocks: str = "152", features: str = FEATURES, head: str = "", version: str = "1", tail: str = "") -> str:
    """``mega/spec.py`` with these expressions in it."""
    return (
        f"import os\nimport enum\nimport dataclasses\n{IMPORTS}\n{textwrap.dedent(head)}\n\n"
        "def build(model, hf_config, context):\n    raise NotImplementedError\n\n\n"
        "SPEC = MegakernelSpec(\n"
        '    name="stand-in",\n'
        f"    requires=Requirements({SETS}, resident_blocks={blocks}),\n"
        f"    features={features},\n"
        "    numerics=Numerics(NumericsKind.BITWISE),\n"
        "    max_rows=24,\n"
        "    build=build,\n"
        f"    api_version={version},\n"
        f")\n{textwrap.dedent(tail)}"
    )


@dataclass(frozen=True)
class Shape:
    """A tree and what the B300 series must say about it."""

    files: Mapping[str, str | bytes]
    blocks: str = APPLIES
    """State of ``0001-resident-blocks-148``."""
    features: str = APPLIES
    """State of ``0002-kv-offload``."""
    changed: tuple[str, ...] = ("mega/spec.py",)
    """Files that applying changes; empty when it must not apply."""
    says: tuple[str, ...] = ()
    """Words that the reason or the sites must hold."""
    base: Mapping[str, str | bytes] = field(default_factory=lambda: dict(BASE))

    def tree(self) -> dict[str, str | bytes]:
        """Every file of the shape."""
        return {**self.base, **self.files}


BASE: dict[str, str | bytes] = {
    "pyproject.toml": PYPROJECT,
    "mega/__init__.py": INIT,
    "csrc/step.cu": KERNEL,
    "csrc/mega.cuh": "#pragma once\nconstexpr int kThreads = 256;\n",
    "tests/test_spec.py": "def test_blocks():\n    assert SPEC.requires.resident_blocks == 152\n",
    "README.md": "Needs 152 SMs.\n",
}


def _shape(**more: object) -> Shape:
    return Shape(**more)  # type: ignore[arg-type]


CONFIG = "mega/config.py"
SHAPES: dict[str, Shape] = {
    # Followed to the end.
    "literal": _shape(files={"mega/spec.py": spec()}),
    "positional": _shape(
        files={"mega/spec.py": spec().replace(f"{SETS}, resident_blocks=152", 'frozenset({"sm_103"}), frozenset({4}), 152')}
    ),
    "named": _shape(files={"mega/spec.py": spec("RESIDENT_BLOCKS", head="RESIDENT_BLOCKS = 152\n")}),
    "renamed": _shape(files={"mega/spec.py": spec("_GB300", head="_GB300: int = 152\n")}),
    "imported": _shape(
        files={
            CONFIG: "RESIDENT_BLOCKS = 152\nROWS = 24\n",
            "mega/spec.py": spec("RESIDENT_BLOCKS", head="from .config import RESIDENT_BLOCKS\n"),
        },
        changed=(CONFIG, "mega/spec.py"),
    ),
    "imported_as": _shape(
        files={
            CONFIG: "SMS = 152\n",
            "mega/again.py": "from mega.config import SMS as GRID\n",
            "mega/spec.py": spec("Z", head="from .again import GRID as Z\n"),
        },
        changed=(CONFIG, "mega/spec.py"),
    ),
    "module_attribute": _shape(
        files={CONFIG: "blocks = 152\n", "mega/spec.py": spec("cfg.blocks", head="from mega import config as cfg\n")},
        changed=(CONFIG, "mega/spec.py"),
    ),
    "star": _shape(
        files={CONFIG: "RESIDENT_BLOCKS = 152\n", "mega/spec.py": spec("RESIDENT_BLOCKS", head="from .config import *\n")},
        changed=(CONFIG, "mega/spec.py"),
    ),
    "contract_as_module": _shape(
        files={
            "mega/spec.py": spec(features="frozenset((c.Feature.SPECULATIVE_DECODING,))").replace(
                IMPORTS,
                "import sglang.kernels.plugin_kernels.nvidia.spec as c\n"
                "from sglang.kernels.plugin_kernels.nvidia.spec import *\n",
            )
        }
    ),
    "computed": _shape(files={"mega/spec.py": spec("4 * 38")}),
    "computed_named": _shape(
        files={"mega/spec.py": spec("GPCS * PER_GPC", head="GPCS = 8\nPER_GPC = 19\n")},
    ),
    "parenthesised": _shape(files={"mega/spec.py": spec("(152)", features="(frozenset({Feature.SPECULATIVE_DECODING}))")}),
    "default_argument": _shape(
        files={
            "mega/spec.py": spec(
                "resident_blocks",
                tail="    return SPEC\n\n\nSPEC = make()\n",
            ).replace("SPEC = MegakernelSpec(", "def make(resident_blocks: int = 152):\n    SPEC = MegakernelSpec(")
        }
    ),
    "passed_argument": _shape(
        files={
            "mega/make.py": "from sglang.kernels.plugin_kernels.nvidia.spec import Requirements\n\n\n"
            f"def needs(blocks):\n    return Requirements({SETS}, resident_blocks=blocks)\n",
            "mega/spec.py": spec(head="from .make import needs\n").replace(
                f"Requirements({SETS}, resident_blocks=152)", "needs(152)"
            ),
        },
    ),
    "enum": _shape(
        files={"mega/spec.py": spec("Sms.GB300", head="class Sms(enum.IntEnum):\n    H200 = 132\n    GB300 = 152\n")},
    ),
    "enum_value": _shape(
        files={"mega/spec.py": spec("Blocks.RESIDENT.value", head="class Blocks(enum.Enum):\n    RESIDENT = 152\n")},
    ),
    "dataclass": _shape(
        files={
            CONFIG: "from dataclasses import dataclass, field\n\n\n@dataclass(frozen=True)\nclass Config:\n"
            "    rows: int = 24\n    resident_blocks: int = field(default=152)\n\n\nCONFIG = Config()\n",
            "mega/spec.py": spec("CONFIG.resident_blocks", head="from .config import CONFIG\n"),
        },
        changed=(CONFIG, "mega/spec.py"),
    ),
    "instance": _shape(
        files={
            "mega/spec.py": spec(
                "CONFIG.grid", head="from types import SimpleNamespace\nCONFIG = SimpleNamespace(rows=24, grid=152)\n"
            )
        }
    ),
    "table": _shape(files={"mega/spec.py": spec('TABLE["blocks"]', head='TABLE = {"rows": 24, "blocks": 152}\n')}),
    "unpacked": _shape(
        files={
            "mega/spec.py": spec(head=f"NEEDS = dict({SETS}, resident_blocks=152)\n").replace(
                f"Requirements({SETS}, resident_blocks=152)", "Requirements(**NEEDS)"
            )
        }
    ),
    "subclass": _shape(
        files={
            "mega/spec.py": spec(head="class Needs(Requirements, frozen=True):\n    resident_blocks: int = 152\n").replace(
                '=Requirements(isas=frozenset({"sm_103"}), tp_sizes=frozenset({4}), resident_blocks=152)', f"=Needs({SETS})"
            )
        }
    ),
    "function": _shape(
        files={"mega/spec.py": spec("resident_blocks()", head='def resident_blocks():\n    """Of GB300."""\n    return 152\n')}
    ),
    "src_layout": _shape(
        files={
            "pyproject.toml": PYPROJECT,
            "src/mega/__init__.py": INIT,
            "src/mega/config.py": "RESIDENT_BLOCKS = 152\n",
            "src/mega/spec.py": spec("RESIDENT_BLOCKS", head="from mega.config import RESIDENT_BLOCKS\n"),
        },
        base={},
        changed=("src/mega/config.py", "src/mega/spec.py"),
    ),
    "counting_names": _shape(
        # 152 here and there, as it comes up in any big tree: none of it is the setting.
        files={
            "mega/spec.py": spec(),
            "mega/op_152.py": "VALUE = 152\n\n\ndef op_152(x):\n    return x + 152\n",
            "csrc/k_152.cu": "__global__ void k_152() { int x = 152; }\nconstexpr int kValue = 152;\n",
            "csrc/a.cu": "__device__ int f() { int y = 152; return y * 152; }\n",
        }
    ),
    "the_package_itself": _shape(
        files={
            "__init__.py": "",
            "config.py": "RESIDENT_BLOCKS = 152\n",
            "spec.py": spec("RESIDENT_BLOCKS", head="from source.config import RESIDENT_BLOCKS\n"),
        },
        base={},
        changed=("config.py", "spec.py"),
    ),
    "no_entry_point": _shape(files={"mega/__init__.py": "", "pyproject.toml": "", "mega/spec.py": spec()}),
    "needs_torch": _shape(
        files={
            "mega/spec.py": spec(
                head="import torch\nfrom sglang.srt.environ import envs\n\n\nclass Net(torch.nn.Module):\n    pass\n"
            )
        }
    ),
    "windows_lines": _shape(files={"mega/spec.py": spec().replace("\n", "\r\n").encode()}),
    "byte_order_mark": _shape(files={"mega/spec.py": b"\xef\xbb\xbf" + spec().encode()}),
    # The same constant repeated for the C++ side.
    "header_consistent": _shape(
        files={
            "mega/spec.py": spec("RESIDENT_BLOCKS", head="RESIDENT_BLOCKS = 152\n"),
            "csrc/mega.cuh": "#pragma once\n// 152 SMs\nconstexpr int kResidentBlocks = 4 * 38;\n"
            "#define MEGA_RESIDENT_BLOCKS 152\n",
        },
        changed=("csrc/mega.cuh", "mega/spec.py"),
    ),
    "used_for_launch": _shape(
        files={
            CONFIG: "RESIDENT_BLOCKS = 152\n",
            "mega/launch.py": "from .config import RESIDENT_BLOCKS\n\n\ndef launch(f):\n    return f(grid=(RESIDENT_BLOCKS,))\n",
            "mega/spec.py": spec("RESIDENT_BLOCKS", head="from .config import RESIDENT_BLOCKS\n"),
        },
        changed=(CONFIG, "mega/spec.py"),
    ),
    # Features, written in other ways.
    "features_named": _shape(files={"mega/spec.py": spec(features="ACCEPTED", head=f"ACCEPTED = {FEATURES}\n")}),
    "features_union": _shape(
        files={
            "mega/spec.py": spec(
                features="BASE | {Feature.MULTI_NODE_TP}", head="BASE = frozenset([Feature.SPECULATIVE_DECODING])\n"
            )
        }
    ),
    "features_union_call": _shape(
        files={
            "mega/features.py": IMPORTS + "BASE = frozenset({\n    Feature.SPECULATIVE_DECODING,  # DSpark\n})\n",
            "mega/spec.py": spec(
                features="BASE.union(MORE)", head="from .features import BASE\nMORE = (Feature.MULTI_NODE_TP,)\n"
            ),
        },
        changed=("mega/features.py", "mega/spec.py"),
    ),
    "features_starred": _shape(
        files={
            "mega/spec.py": spec(
                features="frozenset({*BASE, Feature.MULTI_NODE_TP})", head="BASE = [Feature.SPECULATIVE_DECODING]\n"
            )
        }
    ),
    "features_shared": _shape(
        files={
            "mega/spec.py": spec(
                features="BASE",
                head="BASE = (Feature.SPECULATIVE_DECODING,)\nOTHER = frozenset(BASE)\n",
            ).replace("features=BASE", "features=frozenset(BASE)")
        }
    ),
    "features_multiline": _shape(
        files={
            "mega/spec.py": spec(
                features="frozenset(\n        {\n            Feature.SPECULATIVE_DECODING,\n"
                "            Feature.MULTI_NODE_TP,  # two nodes\n        }\n    )"
            )
        }
    ),
    "features_empty": _shape(files={"mega/spec.py": spec(features="frozenset()")}),
    "features_all": _shape(files={"mega/spec.py": spec(features="frozenset(Feature)")}, features=ALREADY),
    # There already.
    "already": _shape(
        files={"mega/spec.py": spec("148", features="frozenset({Feature.KV_OFFLOAD})")},
        blocks=ALREADY,
        features=ALREADY,
        changed=(),
    ),
    "half": _shape(files={"mega/spec.py": spec("148")}, blocks=ALREADY),
    # A person must look.
    "shared_meaning": _shape(
        files={"mega/spec.py": spec("N", head="N = 152\nSCRATCH_KB = N * 2\n")},
        blocks=AMBIGUOUS,
        changed=(),
        says=("uses N", "defines N"),
    ),
    "twice": _shape(
        files={"mega/spec.py": spec("N", head="N = 152\nMAX_DRAFTS = 152\n")}, blocks=AMBIGUOUS, changed=(), says=("MAX_DRAFTS",)
    ),
    "header_other_meaning": _shape(
        files={"mega/spec.py": spec(), "csrc/mega.cuh": "#pragma once\nconstexpr int kStageBytes = 152;\n"},
        blocks=AMBIGUOUS,
        changed=(),
        says=("kStageBytes", "csrc/mega.cuh:2"),
    ),
    "header_grid": _shape(
        files={"mega/spec.py": spec(), "csrc/mega.cuh": "#define NUM_SMS 152\n"}, blocks=AMBIGUOUS, changed=(), says=("NUM_SMS",)
    ),
    "kernel_launch": _shape(
        files={"mega/spec.py": spec(), "csrc/step.cu": KERNEL + "void go(float* x) { step<<<152, 256>>>(x); }\n"},
        blocks=AMBIGUOUS,
        changed=(),
        says=("a launch with the old value",),
    ),
    "kernel_constant": _shape(
        files={"mega/spec.py": spec(), "csrc/step.cu": "constexpr int kResidentBlocks = 152;\n" + KERNEL},
        blocks=AMBIGUOUS,
        changed=(),
        says=("promises to leave such files untouched",),
    ),
    "sm_check": _shape(
        files={"mega/spec.py": spec(), "mega/check.py": "def check(props):\n    return props.multi_processor_count == 152\n"},
        blocks=AMBIGUOUS,
        changed=(),
        says=("multi_processor_count",),
    ),
    "two_specs": _shape(
        files={"mega/spec.py": spec(tail=f"DRAFT = Requirements({SETS}, resident_blocks=152)\n")},
        blocks=AMBIGUOUS,
        changed=(),
        says=("called 2 times, 1 expected",),
    ),
    "environment": _shape(
        files={"mega/spec.py": spec('int(os.environ.get("BLOCKS", 152))')}, blocks=AMBIGUOUS, changed=(), says=("run time",)
    ),
    "conditional": _shape(
        files={"mega/spec.py": spec('152 if os.environ.get("X") else 148')},
        blocks=AMBIGUOUS,
        changed=(),
        says=("chosen at run time",),
    ),
    "bound_twice": _shape(
        files={"mega/spec.py": spec("N", head='N = 152\nif os.environ.get("X"):\n    N = 148\n')},
        blocks=AMBIGUOUS,
        changed=(),
        says=("bound 2 times",),
    ),
    "set_from_outside": _shape(
        files={
            CONFIG: "N = 152\n",
            "mega/other.py": "from mega import config\n\nconfig.N = 140\n",
            "mega/spec.py": spec("N", head="from .config import N\n"),
        },
        blocks=AMBIGUOUS,
        changed=(),
        says=("also changed elsewhere",),
    ),
    "replaced": _shape(
        files={"mega/spec.py": spec(tail="B300 = dataclasses.replace(SPEC.requires, resident_blocks=148)\n")},
        blocks=AMBIGUOUS,
        changed=(),
        says=("replace()",),
    ),
    "read_from_header": _shape(
        files={
            "mega/spec.py": spec(
                "read()", head="def read():\n    text = open('csrc/mega.cuh').read()\n    return int(text.split()[-1])\n"
            ),
            "csrc/mega.cuh": "#define MEGA_RESIDENT_BLOCKS 152\n",
        },
        blocks=AMBIGUOUS,
        changed=(),
        says=("run time", "csrc/mega.cuh:1", "MEGA_RESIDENT_BLOCKS"),
    ),
    "enum_sibling": _shape(
        files={"mega/spec.py": spec("Sms.GB300", head="class Sms(enum.IntEnum):\n    B300 = 148\n    GB300 = 152\n")},
        blocks=AMBIGUOUS,
        changed=(),
        says=("B300 of the same class is 148 already",),
    ),
    "build_file": _shape(
        files={"mega/spec.py": spec(), "CMakeLists.txt": "add_definitions(-DMEGA_RESIDENT_BLOCKS=152)\n"},
        blocks=AMBIGUOUS,
        changed=(),
        says=("CMakeLists.txt:1",),
    ),
    "compiler_flag": _shape(
        files={"mega/spec.py": spec(), "mega/jit.py": 'FLAGS = ["-O3", "-DNUM_SMS=152"]\n'},
        blocks=AMBIGUOUS,
        changed=(),
        says=("mega/jit.py:1", "a compiler flag with the old value"),
    ),
    "data_file": _shape(
        files={
            "mega/spec.py": spec('json.load(open("c.json"))["blocks"]', head="import json\n"),
            "mega/c.json": '{\n "blocks": 152\n}\n',
        },
        blocks=AMBIGUOUS,
        changed=(),
        says=("mega/c.json:2",),
    ),
    "features_loop": _shape(
        files={"mega/spec.py": spec(features='frozenset(Feature[n] for n in ("SPECULATIVE_DECODING",))')},
        features=AMBIGUOUS,
        changed=(),
        says=("built in a loop",),
    ),
    "features_filled": _shape(
        files={"mega/spec.py": spec(features="F", head='F = set()\nfor n in ("LORA", "EPLB"):\n    F.add(Feature[n])\n')},
        features=AMBIGUOUS,
        changed=(),
        says=("changed elsewhere",),
    ),
    "features_difference": _shape(
        files={"mega/spec.py": spec(features="frozenset(Feature) - {Feature.KV_OFFLOAD}")},
        features=AMBIGUOUS,
        changed=(),
        says=("difference",),
    ),
    # Not what the series was written for.
    "wrong_interface": _shape(
        files={"mega/spec.py": spec(version="2")}, blocks=CONFLICT, features=CONFLICT, changed=(), says=("interface version 2",)
    ),
    "other_value": _shape(files={"mega/spec.py": spec("132")}, blocks=CONFLICT, changed=(), says=("is 132, expected 152",)),
    "argument_renamed": _shape(
        files={"mega/spec.py": spec().replace("resident_blocks=152", "persistent_ctas=152")},
        blocks=CONFLICT,
        changed=(),
        says=("without resident_blocks",),
    ),
    "half_patched": _shape(
        files={"mega/spec.py": spec("148"), "csrc/mega.cuh": "#define MEGA_RESIDENT_BLOCKS 152\n"},
        blocks=CONFLICT,
        changed=(),
        says=("half applied",),
    ),
    "syntax_error": _shape(
        files={"mega/spec.py": spec(), "mega/broken.py": "X = 1\nY = = 2\n"},
        blocks=CONFLICT,
        features=CONFLICT,
        changed=(),
        says=("mega/broken.py:2", "invalid syntax", "Y = = 2"),
    ),
    "not_the_plugin": _shape(
        files={"thing/__init__.py": "X = 152\n"},
        base={},
        blocks=CONFLICT,
        features=CONFLICT,
        changed=(),
        says=("called nowhere",),
    ),
    "does_not_hold": _shape(
        # Right on paper; at run time something else wins. Only the import can see it.
        files={
            "mega/spec.py": spec(tail="from mega.late import settle\n\nSPEC = settle(SPEC)\n").replace(
                "SPEC = Mega", "SPEC = FIRST = Mega"
            ),
            "mega/late.py": "import msgspec\n\n\ndef settle(spec):\n"
            "    needs = {**msgspec.structs.asdict(spec.requires), 'resident_' + 'blocks': 150 + 2}\n"
            "    fields = {**msgspec.structs.asdict(spec), 'requires': type(spec.requires)(**needs)}\n"
            "    return type(spec)(**fields)\n",
        },
        blocks=CONFLICT,
        changed=(),
    ),
}


def write(shape: Shape | Mapping[str, str | bytes], folder: Path) -> Path:
    """Put a tree on disk; returns its folder."""
    for path, content in (shape.tree() if isinstance(shape, Shape) else shape).items():
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def big(files: int = 300) -> Shape:
    """A tree of the size of a real release: kernels, headers and Python around one spec."""
    body = "".join(
        f"def op_{n}(x, y, *, scale=1.0):\n    z = [a * scale + {n} for a in x]\n    return sum(z) if y else None\n\n\n"
        for n in range(40)
    )
    kernel = "".join(f"__device__ float f{n}(float a) {{ return a * {n}.5f + {n}; }}\n" for n in range(120))
    tree: dict[str, str | bytes] = dict(SHAPES["header_consistent"].tree())
    number = 0
    while len(tree) < files:
        number += 1
        tree[f"mega/ops/op_{number}.py"] = f"# {number}\n{IMPORTS}\n\n{body}"
        tree[f"csrc/kernels/k_{number}.cu"] = f"// {number}\n{kernel}"
        tree[f"csrc/include/k_{number}.cuh"] = f"#pragma once\n{kernel}"
    return Shape(files={}, base=dict(list(tree.items())[:files]), changed=("csrc/mega.cuh", "mega/spec.py"))
