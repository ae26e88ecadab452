"""Profile to command: the exact arguments and environment of the engine. Pure.

The same function writes the unit, feeds the parser's check and is hashed into a gate's pass: what was checked is what serves.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import JsonValue

from kit.engine.model import EngineProfile, Speculation

SCRIPT = "serve.py"
"""Of ``inside``: starts SGLang, the API key put in from a file."""
KEY_FILE = "B300KIT_KEY_FILE"
SAME_DRAWS = "SYNC_TOKEN_IDS_ACROSS_TP"
PROBE_INTERVAL = "B300KIT_PROBE_INTERVAL_STEPS"
ALWAYS: Mapping[str, str] = {
    # The kit gives each process its cores; SGLang's own slicing by GPU id would undo that.
    "SGLANG_SET_CPU_AFFINITY": "0",
    "SGLANG_NUMA_BIND_V2": "0",
    "SGLANG_AUTO_NUMA_BIND": "0",
    # A model hub is never asked at start: the weights are on the host or the engine does not start.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


TYPED_FLAGS = frozenset(
    {
        *("model-path", "model", "served-model-name", "host", "port", "device", "dtype", "trust-remote-code", "config"),
        *("tp-size", "tp", "tensor-parallel-size", "ep-size", "ep", "expert-parallel-size", "attention-backend"),
        *("kv-cache-dtype", "context-length", "chunked-prefill-size", "max-running-requests", "mem-fraction-static"),
        *("enable-hierarchical-cache", "hicache-ratio", "hicache-size", "hicache-write-policy", "disable-cuda-graph"),
        *("cuda-graph-backend-decode", "cuda-graph-backend-prefill", "cuda-graph-max-bs-decode", "cuda-graph-bs-decode"),
        *("speculative-algorithm", "speculative-draft-model-path", "speculative-dspark-block-size"),
        *("speculative-use-block-verification", "flashinfer-allreduce-fusion-backend", "enable-nvidia-megakernel"),
        *("watchdog-timeout", "random-seed", "enable-metrics", "reasoning-parser", "tool-call-parser"),
    }
)
"""Flags that a key of the profile sets, without dashes, aliases too: they may not stand in ``flags`` a second time."""


@dataclass(frozen=True)
class Placement:
    """What a host adds to a profile."""

    host: str
    """Private address that the engine listens on."""
    port: int
    model_path: str | None = None
    """Where the weights lie, when not where the profile says."""
    schedulers: tuple[tuple[int, ...], ...] = ()
    """CPUs of each rank's scheduler, by rank. Empty: not pinned by this kit."""
    key_file: str | None = None
    """Where the API key lies on the host; ``%NAME`` is a systemd credential. It is in no argument: see ``inside/serve.py``."""


@dataclass(frozen=True)
class Command:
    """What is started: ``serve.py`` with these arguments, in this environment."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]

    def argv(self, python: str, script: str = SCRIPT) -> tuple[str, ...]:
        """The whole command line; ``script`` is where serve.py lies."""
        return (python, script, *self.arguments)

    def sha256(self) -> str:
        """Over arguments and environment; a pass of a gate holds for this hash alone."""
        body = json.dumps([list(self.arguments), sorted(self.environment.items())], ensure_ascii=False)
        return hashlib.sha256(body.encode()).hexdigest()


def command(profile: EngineProfile, placement: Placement) -> Command:
    """The engine's command on one host."""
    words = [*_model(profile, placement), *_shape(profile), *_speed(profile), *_watch(profile)]
    for name, value in profile.flags.items():
        words += _flag(name, value)
    return Command(tuple(words), _environment(profile, placement))


def _model(profile: EngineProfile, placement: Placement) -> list[str]:
    model = profile.model
    words = ["--model-path", placement.model_path or model.path, "--served-model-name", model.served_name]
    words += ["--host", placement.host, "--port", str(placement.port), "--device", profile.device]
    words += ["--dtype", model.dtype] if model.dtype != "auto" else []
    return words + (["--trust-remote-code"] if model.trust_remote_code else [])


def _shape(profile: EngineProfile) -> list[str]:
    words = ["--tp-size", str(profile.parallel.tensor), "--ep-size", str(profile.parallel.expert)]
    words += ["--attention-backend", profile.attention_backend, "--kv-cache-dtype", profile.kv_cache_dtype]
    words += ["--context-length", str(profile.context_tokens), "--max-running-requests", str(profile.max_running_requests)]
    words += ["--mem-fraction-static", f"{profile.memory_fraction:g}"]
    if profile.chunked_prefill_tokens is not None:
        words += ["--chunked-prefill-size", str(profile.chunked_prefill_tokens)]
    if profile.hicache is not None:
        words += ["--enable-hierarchical-cache", "--hicache-write-policy", profile.hicache.write_policy]
        words += ["--hicache-ratio", f"{profile.hicache.ratio:g}"] if profile.hicache.ratio is not None else []
        words += ["--hicache-size", str(profile.hicache.size_gb)] if profile.hicache.size_gb is not None else []
    return words


def _speed(profile: EngineProfile) -> list[str]:
    words: list[str] = []
    if profile.graphs is None:
        words += ["--cuda-graph-backend-decode", "disabled", "--cuda-graph-backend-prefill", "disabled"]
    else:
        words += ["--cuda-graph-max-bs-decode", str(profile.graphs.max_batch)]
        if profile.graphs.batch_sizes:
            words += ["--cuda-graph-bs-decode", *map(str, profile.graphs.batch_sizes)]
    words += _speculation(profile.speculation) if profile.speculation is not None else []
    if profile.all_reduce_fusion is not None:
        words += ["--flashinfer-allreduce-fusion-backend", profile.all_reduce_fusion]
    return words + (["--enable-nvidia-megakernel"] if profile.megakernel is not None else [])


def _speculation(spec: Speculation) -> list[str]:
    words = ["--speculative-algorithm", spec.algorithm]
    words += ["--speculative-draft-model-path", spec.draft_model] if spec.draft_model else []
    words += ["--speculative-dspark-block-size", str(spec.block_size)] if spec.block_size is not None else []
    return words + (["--speculative-use-block-verification"] if spec.block_verification else [])


def _watch(profile: EngineProfile) -> list[str]:
    words = ["--watchdog-timeout", str(profile.watchdog_timeout_s), "--random-seed", str(profile.random_seed), "--enable-metrics"]
    words += ["--reasoning-parser", profile.parsers.reasoning] if profile.parsers.reasoning else []
    return words + (["--tool-call-parser", profile.parsers.tools] if profile.parsers.tools else [])


def _flag(name: str, value: JsonValue) -> list[str]:
    """``--name``, ``--name v`` or ``--name v w``; false leaves it out."""
    if value is False or value is None:
        return []
    if value is True:
        return [f"--{name}"]
    if isinstance(value, list):
        return [f"--{name}", *(_text(item) for item in value)]
    return [f"--{name}", _text(value)]


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _environment(profile: EngineProfile, placement: Placement) -> dict[str, str]:
    environment = dict(ALWAYS)
    if profile.device == "cpu":
        environment["SGLANG_USE_CPU_ENGINE"] = "1"
    if placement.key_file:
        environment[KEY_FILE] = placement.key_file
    if profile.megakernel is not None:
        environment[PROBE_INTERVAL] = str(profile.megakernel.probe_interval_steps)
        environment[SAME_DRAWS] = "1"
    environment |= dict(profile.environment)
    if profile.device == "cpu" and placement.schedulers:
        environment["SGLANG_CPU_OMP_THREADS_BIND"] = "|".join(",".join(map(str, cpus)) for cpus in placement.schedulers)
    return environment
