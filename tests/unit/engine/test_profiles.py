"""Profiles of the fleet, what they mean as a command, and each lint rule on the profile that breaks it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kit import paths
from kit.engine.argv import Placement, command
from kit.engine.check import Answer, Refusal, judge
from kit.engine.lint import fits_host, lint
from kit.engine.load import load_all, load_profile
from kit.engine.model import EngineProfile
from kit.errors import ExitCode, KitError
from kit.gates.names import GATES
from kit.spec.load import load_host

FLEET = [paths.ROOT / "fleet"]
HERE = Placement(host="10.0.0.5", port=30000)


def profile(name: str = "production", **changes: Any) -> EngineProfile:
    """A profile of the fleet with keys replaced; a dotted key goes into a part."""
    document = json.loads(load_profile(name, FLEET).model_dump_json())
    for key, value in changes.items():
        place = document
        *parts, last = key.split("__")
        for part in parts:
            place = place[part]
        if value is ...:
            del place[last]
        else:
            place[last] = value
    return EngineProfile.model_validate(document)


def codes(one: EngineProfile) -> set[str]:
    return {finding.code.removeprefix("engine.") for finding in lint(one, one.name)}


def words(name: str) -> list[str]:
    return list(command(load_profile(name, FLEET), HERE).arguments)


def pair(flag: str, value: str, among: list[str]) -> bool:
    return any(among[i : i + 2] == [flag, value] for i in range(len(among)))


def test_every_profile_is_good() -> None:
    good, failures = load_all(FLEET)
    assert failures == []
    assert set(good) == {"production", "baseline", "cpu-tiny", "cpu-smollm2"}


@pytest.mark.parametrize(
    ("flag", "value"),
    [
        ("--tp-size", "4"),
        ("--ep-size", "1"),
        ("--attention-backend", "flashmla"),
        ("--kv-cache-dtype", "fp8_e4m3"),
        ("--hicache-ratio", "2"),
        ("--hicache-write-policy", "write_through_selective"),
        ("--context-length", "1048576"),
        ("--chunked-prefill-size", "8192"),
        ("--max-running-requests", "64"),
        ("--cuda-graph-max-bs-decode", "64"),
        ("--speculative-algorithm", "DSPARK"),
        ("--speculative-dspark-block-size", "5"),
        ("--flashinfer-allreduce-fusion-backend", "trtllm"),
    ],
)
def test_production_is_what_was_published(flag: str, value: str) -> None:
    assert pair(flag, value, words("production"))


def test_the_baseline_differs_in_the_megakernel_and_the_experts_alone() -> None:
    assert "--enable-nvidia-megakernel" in words("production")
    assert set(words("production")) - set(words("baseline")) == {"--enable-nvidia-megakernel"}
    assert pair("--ep-size", "4", words("baseline"))


def test_production_requires_every_gate() -> None:
    assert set(load_profile("production", FLEET).gates.required) == set(GATES)


def test_no_key_is_in_the_arguments() -> None:
    made = command(load_profile("production", FLEET), Placement("10.0.0.5", 30000, key_file="%engine-api-key"))
    assert made.environment["B300KIT_KEY_FILE"] == "%engine-api-key"
    assert not any("key" in word for word in made.arguments)


def test_the_hash_sees_arguments_and_environment() -> None:
    one = command(profile(), HERE).sha256()
    assert one == command(profile(), HERE).sha256()
    assert one != command(profile(max_running_requests=63), HERE).sha256()
    assert one != command(profile(environment={"NCCL_DEBUG": "INFO"}), HERE).sha256()


def test_ranks_are_bound_on_a_cpu() -> None:
    made = command(load_profile("cpu-tiny", FLEET), Placement("127.0.0.1", 1, schedulers=((0,), (1, 3))))
    assert made.environment["SGLANG_CPU_OMP_THREADS_BIND"] == "0|1,3"


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        ("name", {"name": "production"}),
        ("ep_with_megakernel", {"parallel__expert": 4}),
        ("ep_divides_tp", {"parallel__expert": 3}),
        ("graphs_with_megakernel", {"graphs": None}),
        ("graphs_cover", {"graphs__max_batch": 32}),
        ("dspark_graph_cap", {"graphs__max_batch": 128}),
        ("dspark_graph_cap", {"graphs": None}),
        ("dspark_depth", {"speculation__block_size": 6}),
        ("dspark_depth", {"speculation__block_size": None}),
        ("dspark_only", {"speculation__algorithm": "EAGLE"}),
        ("graph_count", {"graphs__batch_sizes": [1, 64]}),
        ("graph_cap", {"graphs__batch_sizes": [1, 32], "graphs__expected": 2}),
        ("hicache_size", {"hicache__size_gb": 100}),
        ("hicache_size", {"hicache__ratio": None}),
        ("device", {"device": "cpu"}),
        ("parser", {"parsers__resolved_reasoning": ""}),
        ("tool_parser", {"parsers__resolved_tools": "deepseekv4"}),
        ("tool_parser", {"parsers__tools": "", "parsers__resolved_tools": ""}),
        ("variable", {"environment": {"SGLANG_SIMULATE_ACC_LEN": "4"}}),
        ("variable", {"environment": {"NCCL_NVLS_ENABLE": "0"}}),
        ("variable", {"environment": {"SGLANG_SET_CPU_AFFINITY": "1"}}),
        ("variable", {"environment": {"SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "False"}}),
        ("secret", {"environment": {"OPENAI_API_KEY": "x"}}),
        ("secret", {"flags": {"api-key": "x"}}),
        ("flag_twice", {"flags": {"tp": 8}}),
        ("deterministic", {"flags": {"enable-deterministic-inference": True}}),
        ("watchdog", {"watchdog_timeout_s": 4}),
        ("gates", {"gates__required": [g for g in GATES if g != "kl"]}),
        (
            "gates",
            {"gates__required": [g for g in GATES if g != "kl"], "gates__not_applicable": {"kl": "it takes too long here"}},
        ),
        ("gates", {"gates__required": [*GATES, "kl"]}),
        ("gates", {"gates__sizes__kl": None}),
        ("gates", {"megakernel": None}),
    ],
)
def test_each_rule_is_broken_by_its_fault(code: str, changes: dict[str, Any]) -> None:
    stem = "other" if code == "name" else "production"
    found = {finding.code.removeprefix("engine.") for finding in lint(profile(**changes), stem)}
    assert code in found


def test_a_good_profile_has_no_finding_and_a_harmless_variable_is_none() -> None:
    assert codes(profile()) == set()
    assert codes(profile(environment={"NCCL_NVLS_ENABLE": "1", "NCCL_DEBUG": "INFO"})) == set()


def test_a_baseline_may_drop_the_megakernels_gate_alone() -> None:
    required = [g for g in GATES if g not in ("plugin", "kl")]
    dropped = {"plugin": "this profile runs without it", "kl": "it takes too long here"}
    assert codes(profile("baseline")) == set()
    assert codes(profile("baseline", gates__required=required, gates__not_applicable=dropped)) == {"gates"}


def test_the_hosts_sum_and_the_profile_agree() -> None:
    host = load_host(paths.ROOT / "fleet" / "examples" / "example.yml")
    assert fits_host(profile(), host) == []
    assert [f.path for f in fits_host(profile(hicache__ratio=3), host)] == [("hicache", "ratio")]
    assert [f.code for f in fits_host(profile(parallel__tensor=8), host)] == ["engine.ranks"]


def test_an_unknown_profile_names_those_there_are() -> None:
    with pytest.raises(KitError) as raised:
        load_profile("prodution", FLEET)
    assert raised.value.exit_code == ExitCode.USAGE
    assert "production" in raised.value.failures[0].expected


PARSERS = {"reasoning": ("deepseek-v41", "qwen3"), "tools": ("deepseekv41", "qwen25")}


def test_what_the_installed_parser_refuses_is_told() -> None:
    refusal = Refusal(flag="--enable-nvidia-megakernel", given="", said="no such flag")
    found = judge(profile(), Answer(version="0.5.20", problems=(refusal,), parsed={}, graphs=None, parsers=PARSERS))
    assert [f.code for f in found] == ["engine.flag"]
    assert "--enable-nvidia-megakernel" in found[0].where
    assert "0.5.20" in found[0].expected


def test_another_number_of_graphs_or_a_missing_parser_is_told() -> None:
    answer = Answer(
        version="0.5.24", problems=(), parsed={}, graphs=tuple(range(26)), parsers={**PARSERS, "tools": ("deepseekv4",)}
    )
    assert sorted(f.code for f in judge(profile(), answer)) == ["engine.graphs", "engine.parser"]
