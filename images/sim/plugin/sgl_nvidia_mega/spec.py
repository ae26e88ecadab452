"""The spec that SGLang asks for."""

from typing import Any, NoReturn

from sglang.kernels.plugin_kernels.nvidia.spec import Feature, MegakernelSpec, Numerics, NumericsKind, Requirements

from .config import MAX_ROWS, RESIDENT_BLOCKS
from .slots import active


def build(model: Any, hf_config: Any, context: Any) -> NoReturn:
    raise NotImplementedError(f"this is a simulated plugin: it has no kernel for the slots {active()}")


SPEC = MegakernelSpec(
    name="simulated megakernel",
    requires=Requirements(
        isas=frozenset({"sm_103"}),
        tp_sizes=frozenset({4}),
        resident_blocks=RESIDENT_BLOCKS,
        dtypes=frozenset({"torch.bfloat16"}),
    ),
    features=frozenset({Feature.SPECULATIVE_DECODING, Feature.MULTI_NODE_TP}),
    numerics=Numerics(NumericsKind.TOLERANCE, {"kl": 0.03}),
    max_rows=MAX_ROWS,
    build=build,
    api_version=1,
)
