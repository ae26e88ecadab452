"""An engine profile: what an operator declares about serving one model. Frozen, typed, no unknown key.

The lever that matters has a key of its own and is linted; every other flag of SGLang goes into ``flags`` and is checked
against the installed engine's own parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field, JsonValue, StringConstraints

from kit.gates.declare import Frozen, Gates
from kit.spec.model import AbsolutePath, Name

Positive = Annotated[int, Field(ge=1)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,99}$")]
Value = Annotated[str, StringConstraints(pattern=r"^[^\x00-\x1f]{0,4096}$")]
Flag = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{1,80}$")]
ServedName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]{0,200}$")]


class Model(Frozen):
    """The weights, and the name that clients ask for."""

    path: AbsolutePath = Field(description="Folder on the host, as the engine sees it.")
    served_name: ServedName
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    trust_remote_code: bool = False


class Parallel(Frozen):
    """How the model is spread over GPUs."""

    tensor: Annotated[int, Field(ge=1, le=16)]
    expert: Annotated[int, Field(ge=1, le=16)] = 1


class HiCache(Frozen):
    """Offload of the KV cache to host memory, per rank. The pool itself is declared, and summed, in the host's file."""

    ratio: Annotated[float, Field(gt=0, le=64)] | None = None
    size_gb: Positive | None = None
    write_policy: Literal["write_through", "write_through_selective", "write_back"] = "write_through_selective"


class Graphs(Frozen):
    """CUDA graphs of decode."""

    max_batch: Annotated[int, Field(ge=1, le=4096)]
    batch_sizes: tuple[Positive, ...] = Field((), description="Empty: the engine's own list up to max_batch.")
    expected: Annotated[int, Field(ge=1, le=4096)] = Field(description="How many graphs each rank must have captured.")


class Speculation(Frozen):
    """Drafted tokens, verified by the model."""

    algorithm: Literal["DSPARK", "EAGLE", "NEXTN", "NGRAM"]
    block_size: Annotated[int, Field(ge=1, le=16)] | None = Field(None, description="Tokens drafted a step, of DSPARK.")
    block_verification: bool = False
    draft_model: AbsolutePath | None = None


class Megakernel(Frozen):
    """NVIDIA's plugin, and the watch over it."""

    probe_interval_steps: Annotated[int, Field(ge=1, le=100000)] = Field(
        100, description="The ranks compare hashes this often; 10 in a soak."
    )
    plugin_package: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]*$")] = "sgl_nvidia_mega"
    interface: Positive = Field(description="Version of the interface through which SGLang calls the plugin.")


class Parsers(Frozen):
    """``name`` as given to the engine, and what it must have become: `auto` that falls back to nothing is a silent fault."""

    reasoning: Name | Literal[""] = ""
    tools: Name | Literal[""] = ""
    resolved_reasoning: Name | Literal[""] = ""
    resolved_tools: Name | Literal[""] = ""


class Readiness(Frozen):
    """How long a boot may take, phase by phase, in seconds. A phase that is late is told; the total ends the wait."""

    weights_s: Positive = 300
    compile_s: Positive = 300
    capture_s: Positive = 120
    warm_up_s: Positive = 120
    total_s: Positive = 840


class EngineProfile(Frozen):
    """``fleet/engines/NAME.yml``. The file's name is the profile's name."""

    schema_version: Literal[1]
    name: Name
    purpose: Literal["production", "baseline", "test"] = Field(
        description="`production` may drop no gate; `baseline` is production without the megakernel; `test` is for neither."
    )
    numerics: Name = Field(
        description="Profiles of one class give the same bytes for the same prompt: references are compared within a class."
    )
    agrees_with: Name | None = Field(
        None, description="Numerics class whose text is fed to this one (teacher-forced); its own when null."
    )
    runtime: Literal["docker", "rootdir"]
    device: Literal["cuda", "cpu"]
    model: Model
    parallel: Parallel
    attention_backend: Name | Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]+$")]
    kv_cache_dtype: Literal["auto", "fp8_e4m3", "fp8_e5m2", "bfloat16", "float32"] = "auto"
    hicache: HiCache | None = None
    context_tokens: Positive
    chunked_prefill_tokens: Positive | None = None
    max_running_requests: Positive
    memory_fraction: Annotated[float, Field(gt=0, lt=1)]
    graphs: Graphs | None = None
    speculation: Speculation | None = None
    all_reduce_fusion: Literal["trtllm", "mnnvl"] | None = None
    megakernel: Megakernel | None = None
    parsers: Parsers = Parsers()
    watchdog_timeout_s: Positive = Field(300, description="The engine's own; the kit's watchdog is faster.")
    random_seed: int = 1
    readiness: Readiness = Readiness()
    flags: Mapping[Flag, JsonValue] = Field(
        default_factory=dict,
        description="Any further flag: true for a switch, a list for several values. Not one that has a key above.",
    )
    environment: Mapping[Variable, Value] = Field(default_factory=dict)
    gates: Gates
