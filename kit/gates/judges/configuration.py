"""configuration: what the engine resolved its arguments to, and the environment it runs in, are what the profile says."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from kit.engine.lint import HIDING
from kit.engine.model import EngineProfile
from kit.gates.declare import Frozen
from kit.gates.verdict import Fault, Judgement, fault, judged

RECORDED = (
    *("tp_size", "ep_size", "kv_cache_dtype", "attention_backend", "enable_hierarchical_cache", "hicache_ratio", "hicache_size"),
    *(
        "hicache_write_policy",
        "tool_call_parser",
        "reasoning_parser",
        "context_length",
        "served_model_name",
        "chunked_prefill_size",
    ),
    *("max_running_requests", "max_total_num_tokens", "speculative_algorithm", "speculative_dspark_block_size", "dtype"),
    *("speculative_use_block_verification", "enable_nvidia_megakernel", "flashinfer_allreduce_fusion_backend", "random_seed"),
    *("model_path", "weight_version", "version"),
)
"""Keys of the engine's own /server_info that are kept. Not all: it holds the API key in two places."""


class Evidence(Frozen):
    """None: could not be read."""

    resolved: Mapping[str, JsonValue] | None
    models: tuple[str, ...] | None
    """Of /v1/models."""
    environment: Mapping[str, str] | None
    """Variables of the running process that begin with SGLANG_ or NCCL_, and those that the profile sets."""
    host_cache_tokens: float | None = None
    """Tokens that its host pool holds; None when it has none or it could not be read."""


class Limits(Frozen):
    """Nothing to set: equal or not."""


def expected(profile: EngineProfile) -> dict[str, JsonValue]:
    """What each resolved key must be."""
    out: dict[str, JsonValue] = {
        "tp_size": profile.parallel.tensor,
        "ep_size": profile.parallel.expert,
        "kv_cache_dtype": profile.kv_cache_dtype,
        "attention_backend": profile.attention_backend,
        "context_length": profile.context_tokens,
        "max_running_requests": profile.max_running_requests,
        "served_model_name": profile.model.served_name,
        "enable_nvidia_megakernel": profile.megakernel is not None,
        "enable_hierarchical_cache": profile.hicache is not None,
        "random_seed": profile.random_seed,
    }
    if profile.chunked_prefill_tokens is not None:
        out["chunked_prefill_size"] = profile.chunked_prefill_tokens
    if profile.hicache is not None:
        out["hicache_write_policy"] = profile.hicache.write_policy
        out |= {"hicache_ratio": profile.hicache.ratio} if profile.hicache.ratio is not None else {}
        out |= {"hicache_size": profile.hicache.size_gb} if profile.hicache.size_gb is not None else {}
    if profile.speculation is not None:
        out["speculative_algorithm"] = profile.speculation.algorithm
        out["speculative_use_block_verification"] = profile.speculation.block_verification
        if profile.speculation.block_size is not None:
            out["speculative_dspark_block_size"] = profile.speculation.block_size
    else:
        out["speculative_algorithm"] = None
    if profile.all_reduce_fusion is not None:
        out["flashinfer_allreduce_fusion_backend"] = profile.all_reduce_fusion
    for key, name, resolved in (
        ("reasoning_parser", profile.parsers.reasoning, profile.parsers.resolved_reasoning),
        ("tool_call_parser", profile.parsers.tools, profile.parsers.resolved_tools),
    ):
        out[key] = resolved or name or None
    return out


def judge(evidence: Evidence, limits: Limits, profile: EngineProfile) -> Judgement:
    """Every key; the model by its name; the environment without what falsifies or hides."""
    wrong: list[Fault] = []
    unknown: list[Fault] = []
    wanted = expected(profile)
    resolved, environment = evidence.resolved or {}, evidence.environment or {}
    if evidence.resolved is None:
        unknown.append(fault("configuration.unknown", "/server_info", "the resolved arguments", "could not be read"))
    for key, value in wanted.items() if evidence.resolved is not None else ():
        if key not in resolved:
            unknown.append(fault("configuration.unknown", key, value, "not told by this engine"))
        elif resolved[key] != value or isinstance(resolved[key], bool) != isinstance(value, bool):
            wrong.append(fault(f"configuration.{key}", key, value, resolved[key], "restart it with the profile's command"))
    if profile.hicache is not None:
        if evidence.host_cache_tokens is None:
            unknown.append(fault("configuration.unknown", "host cache", "a budget", "could not be read"))
        elif not evidence.host_cache_tokens > 0:
            step = "no memory could be pinned: raise memlock and the cgroup's limit"
            wrong.append(
                fault("configuration.hicache_budget", "host cache", "more than 0 tokens", evidence.host_cache_tokens, step)
            )
    if evidence.models is None:
        unknown.append(fault("configuration.unknown", "/v1/models", profile.model.served_name, "could not be read"))
    elif evidence.models != (profile.model.served_name,):
        found = ", ".join(evidence.models) or "none"
        wrong.append(fault("configuration.model", "/v1/models", profile.model.served_name, found, "another model is served"))
    if evidence.environment is None:
        unknown.append(fault("configuration.unknown", "environment", "the process's variables", "could not be read"))
    for name, value in sorted(environment.items()):
        if name in HIDING and (HIDING[name] is None or HIDING[name] == value.lower()):
            wrong.append(fault("configuration.variable", name, "not set", value, "it falsifies figures or hides a fault"))
    for name, value in profile.environment.items() if evidence.environment is not None else ():
        if environment.get(name) != value:
            found = environment.get(name, "not set")
            wrong.append(fault("configuration.variable", name, value, found, "restart it with the profile's environment"))
    return judged(wrong, unknown, f"all {len(wanted)} resolved arguments are the profile's", {"arguments": len(wanted)})
