"""What is wrong with a profile by itself, whatever is installed. Pure. Each rule is a fault that was seen in the field."""

from __future__ import annotations

from collections.abc import Iterator

from kit.engine.argv import TYPED_FLAGS
from kit.engine.model import EngineProfile
from kit.gates import declare
from kit.image.model import FORBIDDEN_VARIABLES
from kit.spec.check import Finding
from kit.spec.model import HostSpec

DSPARK_GRAPH_CAP = 64
"""DSpark on V4.1 runs out of memory at capture above it."""
BLOCK_MAX = 5
"""Deeper drafts have corrupted output on B300."""
COLD_COMPILE_S = 60
TOOL_PARSERS = frozenset({"deepseekv41"})
HIDING = FORBIDDEN_VARIABLES | {
    "SGLANG_JIT_DEEPGEMM_FAST_WARMUP": None,
    "SGLANG_SIMULATE_ACC_METHOD": None,
    "SGLANG_SIMULATE_ACC_TOKEN_MODE": None,
    "SGLANG_SIMULATE_ACC_GREEDY": None,
    "SGLANG_SIMULATE_UNIFORM_EXPERTS": None,
    "SGLANG_SIMULATE_ROUND_ROBIN_EXPERTS": None,
    "SGLANG_DSPARK_SIMULATE_FOLD": None,
    "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "false",
    "SGLANG_SET_CPU_AFFINITY": "1",
}
"""Variable -> the value that is forbidden, or None for any. Each falsifies a figure, hides a fault or undoes the core pin."""
SECRET_WORDS = ("API_KEY", "AUTH_TOKEN", "HF_TOKEN", "SECRET", "PASSWORD")
SECRET_FLAGS = frozenset({"api-key", "admin-api-key", "ssl-keyfile-password", "watermark-key"})


def lint(profile: EngineProfile, stem: str) -> list[Finding]:
    """Every finding; ``stem`` is the file's name without its suffix."""
    out = list(_rules(profile, stem))
    mega = profile.megakernel is not None
    for key, expected, found, step in declare.problems(profile.gates, profile.purpose, mega):
        out.append(Finding(tuple(key.split(".")), "engine.gates", expected, found, step))
    return out


def _say(key: str, code: str, expected: object, found: object, step: str) -> Finding:
    return Finding(tuple(key.split(".")), f"engine.{code}", str(expected), str(found), step)


def _rules(profile: EngineProfile, stem: str) -> Iterator[Finding]:
    if profile.name != stem:
        yield _say("name", "name", stem, profile.name, "a profile is named like its file")
    if profile.parallel.tensor % profile.parallel.expert:
        expected = f"a divisor of {profile.parallel.tensor}"
        yield _say("parallel.expert", "ep_divides_tp", expected, profile.parallel.expert, "correct one of the two")
    if profile.purpose == "production" and profile.watchdog_timeout_s < COLD_COMPILE_S:
        found = profile.watchdog_timeout_s
        yield _say("watchdog_timeout_s", "watchdog", f"at least {COLD_COMPILE_S}", found, "a cold compile takes longer")
    cache = profile.hicache
    if cache is not None and (cache.ratio is None) == (cache.size_gb is None):
        step = "once one is given the engine sizes nothing itself; the other would be ignored"
        yield _say("hicache", "hicache_size", "ratio or size_gb, one of them", "both or neither", step)
    yield from _megakernel(profile)
    yield from _speculation(profile)
    yield from _graphs(profile)
    yield from _parsers(profile)
    yield from _environment(profile)
    yield from _flags(profile)


def _megakernel(profile: EngineProfile) -> Iterator[Finding]:
    if profile.megakernel is None:
        return
    if profile.parallel.expert != 1:
        step = "the megakernel needs a slice of every expert on each GPU"
        yield _say("parallel.expert", "ep_with_megakernel", 1, profile.parallel.expert, step)
    if profile.device != "cuda":
        yield _say("device", "device", "cuda with the megakernel", profile.device, "take the megakernel out")
    if profile.graphs is None:
        step = "without graphs the megakernel runs in no step"
        yield _say("graphs", "graphs_with_megakernel", "decode graphs", "none", step)
    elif profile.graphs.max_batch < profile.max_running_requests:
        expected = f"at least max_running_requests {profile.max_running_requests}"
        step = "larger batches would run without graphs, and without the megakernel"
        yield _say("graphs.max_batch", "graphs_cover", expected, profile.graphs.max_batch, step)


def _speculation(profile: EngineProfile) -> Iterator[Finding]:
    spec, graphs = profile.speculation, profile.graphs
    if spec is None:
        return
    if spec.algorithm != "DSPARK":
        if spec.block_size is not None or spec.block_verification:
            yield _say("speculation", "dspark_only", "block keys with DSPARK alone", spec.algorithm, "remove them")
        return
    if graphs is None or graphs.max_batch > DSPARK_GRAPH_CAP:
        found = "no cap" if graphs is None else graphs.max_batch
        step = "it runs out of memory at capture"
        yield _say("graphs.max_batch", "dspark_graph_cap", f"at most {DSPARK_GRAPH_CAP} with DSPARK", found, step)
    if spec.block_size is None or spec.block_size > BLOCK_MAX:
        found = spec.block_size or "the engine's default"
        step = "deeper drafts corrupted output on B300"
        yield _say("speculation.block_size", "dspark_depth", f"at most {BLOCK_MAX}", found, step)


def _graphs(profile: EngineProfile) -> Iterator[Finding]:
    graphs = profile.graphs
    if graphs is None or not graphs.batch_sizes:
        return
    sizes, largest = len(set(graphs.batch_sizes)), max(graphs.batch_sizes)
    if graphs.expected != sizes:
        yield _say("graphs.expected", "graph_count", sizes, graphs.expected, "as many as batch sizes")
    if largest != graphs.max_batch:
        yield _say("graphs.batch_sizes", "graph_cap", f"up to {graphs.max_batch}", largest, "let the two agree")


def _flags(profile: EngineProfile) -> Iterator[Finding]:
    for flag in profile.flags:
        path, found = ("flags", flag), f"--{flag}"
        if flag in SECRET_FLAGS:
            step = "it comes from a systemd credential"
            yield Finding(path, "engine.secret", "no secret in arguments", found, step)
        elif flag in TYPED_FLAGS:
            yield Finding(path, "engine.flag_twice", "the profile's own key for it", found, "use that key")
        elif flag == "enable-deterministic-inference" and _v41(profile):
            yield Finding(path, "engine.deterministic", "not with V4.1", found, "the engine refuses it")


def _v41(profile: EngineProfile) -> bool:
    return "V4.1" in profile.model.served_name


def _parsers(profile: EngineProfile) -> Iterator[Finding]:
    parsers = profile.parsers
    for kind, name, resolved in (
        ("reasoning", parsers.reasoning, parsers.resolved_reasoning),
        ("tools", parsers.tools, parsers.resolved_tools),
    ):
        if name == "auto" and not resolved:
            step = f"say what `auto` must become in parsers.resolved_{kind}"
            yield Finding(("parsers", f"resolved_{kind}"), "engine.parser", "a name", "nothing", step)
        elif name and name != "auto" and resolved not in ("", name):
            yield Finding(("parsers", f"resolved_{kind}"), "engine.parser", name, resolved, "let the two agree")
    if _v41(profile) and parsers.resolved_tools not in TOOL_PARSERS:
        found = parsers.resolved_tools or "nothing"
        step = "V4.1 writes its calls as DSML of its own; another parser leaks them"
        yield Finding(("parsers", "resolved_tools"), "engine.tool_parser", "deepseekv41", found, step)


def _environment(profile: EngineProfile) -> Iterator[Finding]:
    for name, value in profile.environment.items():
        if name in HIDING and (HIDING[name] is None or HIDING[name] == value.lower()):
            step = "it falsifies figures, hides a fault or undoes the core pin"
            yield Finding(("environment", name), "engine.variable", "not set", f"{name}={value}", step)
        if (
            any(word in name.upper() for word in ("API_KEY", "TOKEN", "SECRET", "PASSWORD"))
            and name != "SYNC_TOKEN_IDS_ACROSS_TP"
        ):
            step = "secrets come from a systemd credential"
            yield Finding(("environment", name), "engine.secret", "no secret in the environment", name, step)


def fits_host(profile: EngineProfile, spec: HostSpec) -> list[Finding]:
    """What is wrong with this profile on this host: ranks, GPUs, and the host cache's sums."""
    out: list[Finding] = []
    if profile.device == "cuda" and profile.parallel.tensor != spec.gpus.count:
        found, step = f"{spec.gpus.count} GPUs on {spec.name}", "take another profile or host"
        out.append(Finding(("parallel", "tensor"), "engine.ranks", str(profile.parallel.tensor), found, step))
    cache, declared = profile.hicache, spec.memory.hicache
    for key in ("ratio", "write_policy") if cache is not None else ():
        mine, theirs = getattr(cache, key), getattr(declared, key)
        if mine != theirs:
            step = "the host's sum is made with its own value: let the two agree"
            out.append(Finding(("hicache", key), "engine.hicache", f"{theirs} as on {spec.name}", str(mine), step))
    return out
