"""Each gate passes good evidence and catches its planted fault by name. Lines of logs are SGLang's own format strings."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kit import paths
from kit.engine.load import load_profile
from kit.gates import enginelog
from kit.gates.judges import (
    arithmetic,
    cache,
    configuration,
    cores,
    greedy,
    hardware,
    image,
    kl,
    needle,
    plugin,
    speculation,
    speed,
    thinking,
    tools,
)
from kit.gates.judges.idle import Idle
from kit.gates.judges.replies import Call, Reply
from kit.gates.verdict import Judgement, Verdict

PRODUCTION = load_profile("production", [paths.ROOT / "fleet"])
QUIET = Idle(running_before=0, generated=512, own=512, slack=16)


def caught(judgement: Judgement, code: str, verdict: Verdict = Verdict.FAILED) -> None:
    assert judgement.verdict is verdict, judgement
    assert code in {fault.code for fault in judgement.faults}, judgement.faults
    assert judgement.reason


def passed(judgement: Judgement) -> None:
    assert judgement.verdict is Verdict.PASSED, judgement


# hardware


def gpus(**changes: Any) -> hardware.Evidence:
    base = {"sms": 148, "sm_clock_mhz": 2032, "fabric": "completed"}
    one = [{"index": i, **base} for i in range(4)]
    one[2] |= {key: value for key, value in changes.items() if key in base}
    document: dict[str, Any] = {"count": 4, "sms": 148, "sm_clock_mhz": 2032, "fabric": "completed", "gpus": one, "xids": ()}
    return hardware.Evidence.model_validate(document | {key: value for key, value in changes.items() if key not in base})


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"sms": 146}, "hardware.sms", Verdict.FAILED),
        ({"sm_clock_mhz": 1500}, "hardware.clock", Verdict.FAILED),
        ({"fabric": "in_progress"}, "hardware.fabric", Verdict.FAILED),
        ({"xids": ("NVRM: Xid (PCI:0000:1b:00): 13, ...",)}, "hardware.xid", Verdict.FAILED),
        ({"gpus": ()}, "hardware.count", Verdict.FAILED),
        ({"gpus": None}, "hardware.unknown", Verdict.INCONCLUSIVE),
        ({"sms": None}, "hardware.unknown", Verdict.INCONCLUSIVE),
        ({"xids": None}, "hardware.unknown", Verdict.INCONCLUSIVE),
    ],
)
def test_hardware(changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    passed(hardware.judge(gpus(), hardware.Limits()))
    caught(hardware.judge(gpus(**changes), hardware.Limits()), code, verdict)


# image


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"found_id": "sha256:b"}, "image.id", Verdict.FAILED),
        ({"differences": ("sglang/x.py: 1 instead of 2",)}, "image.file", Verdict.FAILED),
        ({"differences": None}, "image.unknown", Verdict.INCONCLUSIVE),
        ({"found_id": None}, "image.unknown", Verdict.INCONCLUSIVE),
        ({"files": 0}, "image.unknown", Verdict.INCONCLUSIVE),
    ],
)
def test_image(changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    good = {"expected_id": "sha256:a", "found_id": "sha256:a", "differences": (), "files": 9000}
    passed(image.judge(image.Evidence.model_validate(good), image.Limits()))
    caught(image.judge(image.Evidence.model_validate(good | changes), image.Limits()), code, verdict)


# configuration


def resolved(profile: Any = PRODUCTION, **changes: Any) -> configuration.Evidence:
    known = configuration.expected(profile)
    return configuration.Evidence(
        resolved={**known, **{k: v for k, v in changes.items() if k in known}},
        models=changes.get("models", (profile.model.served_name,)),
        environment=changes.get("environment", dict(profile.environment)),
        host_cache_tokens=changes.get("host_cache_tokens", 4_000_000),
    )


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"ep_size": 4}, "configuration.ep_size", Verdict.FAILED),
        ({"kv_cache_dtype": "auto"}, "configuration.kv_cache_dtype", Verdict.FAILED),
        ({"enable_hierarchical_cache": False}, "configuration.enable_hierarchical_cache", Verdict.FAILED),
        ({"tool_call_parser": "deepseekv4"}, "configuration.tool_call_parser", Verdict.FAILED),
        ({"tool_call_parser": None}, "configuration.tool_call_parser", Verdict.FAILED),
        ({"enable_nvidia_megakernel": False}, "configuration.enable_nvidia_megakernel", Verdict.FAILED),
        ({"host_cache_tokens": 0.0}, "configuration.hicache_budget", Verdict.FAILED),
        ({"host_cache_tokens": math.nan}, "configuration.hicache_budget", Verdict.FAILED),
        ({"host_cache_tokens": None}, "configuration.unknown", Verdict.INCONCLUSIVE),
        ({"models": ("other",)}, "configuration.model", Verdict.FAILED),
        ({"models": None}, "configuration.unknown", Verdict.INCONCLUSIVE),
        ({"environment": {"SGLANG_SIMULATE_ACC_LEN": "4"}}, "configuration.variable", Verdict.FAILED),
        ({"environment": {"NCCL_NVLS_ENABLE": "0"}}, "configuration.variable", Verdict.FAILED),
        ({"environment": None}, "configuration.unknown", Verdict.INCONCLUSIVE),
    ],
)
def test_configuration(changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    passed(configuration.judge(resolved(), configuration.Limits(), PRODUCTION))
    caught(configuration.judge(resolved(**changes), configuration.Limits(), PRODUCTION), code, verdict)


def test_one_is_not_true() -> None:
    known = configuration.expected(PRODUCTION) | {"enable_nvidia_megakernel": 1}
    evidence = resolved().model_copy(update={"resolved": known})
    caught(configuration.judge(evidence, configuration.Limits(), PRODUCTION), "configuration.enable_nvidia_megakernel")


def test_the_keys_of_the_real_server_info_are_kept_without_its_secrets() -> None:
    assert set(configuration.expected(PRODUCTION)) <= set(configuration.RECORDED)
    assert not {"api_key", "admin_api_key", "launch_command", "internal_states"} & set(configuration.RECORDED)


# plugin and graphs, from a log


def rank_lines(rank: int, routed: int = 27, captured: int = 27) -> str:
    head = f"[2026-10-30 10:00:00 TP{rank}] NVIDIA megakernel: "
    sizes = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4)][:routed]
    active = f"{head}active (DeepseekV4 sm_103: 39 slots; widths [6, 12]; exact numerics; built in 3.1 s, 120.0 MiB; wait"
    graphs = f"{head}DeepseekV4 sm_103 runs the decode graphs of batch sizes {sizes} ({routed} of {captured}); every other"
    return f"{active} deadline 150 s)\n{graphs} step runs the standard forward\n"


SLOTS = tuple(f"slot_{i}" for i in range(39))
EXPECTED = plugin.Expected(ranks=4, graphs=27, interface=1, slots=SLOTS)


def from_log(text: str, **changes: Any) -> plugin.Evidence:
    read = enginelog.read(text)
    ranks = {r: plugin.RankEvidence(active=o.active, routed=o.routed, captured=o.captured) for r, o in read.ranks.items()}
    base: dict[str, Any] = {"interface_engine": 1, "interface_plugin": 1, "slots": SLOTS}
    return plugin.Evidence.model_validate({"ranks": ranks, "failures": read.plugin_failures, **base, **changes})


GOOD_LOG = "".join(rank_lines(rank) for rank in range(4))


def test_plugin_and_graphs_pass() -> None:
    passed(plugin.judge_plugin(from_log(GOOD_LOG), plugin.Limits(), EXPECTED))
    passed(plugin.judge_graphs(from_log(GOOD_LOG), plugin.Limits(), EXPECTED, True))


@pytest.mark.parametrize(
    ("log", "changes", "code", "verdict"),
    [
        ("".join(rank_lines(r) for r in range(3)), {}, "plugin.inactive", Verdict.FAILED),
        ("", {}, "plugin.inactive", Verdict.FAILED),
        (GOOD_LOG, {"interface_plugin": 2}, "plugin.interface", Verdict.FAILED),
        (GOOD_LOG, {"interface_engine": None}, "plugin.unknown", Verdict.INCONCLUSIVE),
        (GOOD_LOG, {"slots": ("sm148",)}, "plugin.slots", Verdict.FAILED),
        (GOOD_LOG, {"slots": None}, "plugin.unknown", Verdict.INCONCLUSIVE),
        (GOOD_LOG, {"ranks": None}, "plugin.unknown", Verdict.INCONCLUSIVE),
        (GOOD_LOG + "[2026-10-30 10:00:00] Failed to load plugin sgl_nvidia_mega: boom\n", {}, "plugin.failed", Verdict.FAILED),
    ],
)
def test_plugin(log: str, changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    caught(plugin.judge_plugin(from_log(log, **changes), plugin.Limits(), EXPECTED), code, verdict)


@pytest.mark.parametrize(
    ("log", "code"),
    [
        (GOOD_LOG.replace("(27 of 27)", "(26 of 27)", 1), "graphs.count"),
        ("".join(rank_lines(r, 26, 26) for r in range(4)), "graphs.count"),
        ("".join(rank_lines(r) for r in range(3)), "graphs.none"),
        ("", "graphs.none"),
    ],
)
def test_graphs(log: str, code: str) -> None:
    caught(plugin.judge_graphs(from_log(log), plugin.Limits(), EXPECTED, True), code)


def test_a_log_that_cannot_be_read_is_no_verdict_on_graphs() -> None:
    judgement = plugin.judge_graphs(from_log(GOOD_LOG, ranks=None), plugin.Limits(), EXPECTED, True)
    caught(judgement, "graphs.unknown", Verdict.INCONCLUSIVE)


# fast cores


def looks(allowed: tuple[int, ...] = (3, 67), count: int = 4, step: float = 2.0) -> cores.Evidence:
    title = "sglang::scheduler_TP0"
    return cores.Evidence(
        seats={title: (3, 67)},
        looks=tuple(cores.Look(at_s=i * step, process=title, threads=((3, 67), allowed)) for i in range(count)),
    )


def test_fast_cores() -> None:
    limits = cores.Limits()
    passed(cores.judge(looks(), limits))
    caught(cores.judge(looks(tuple(range(128))), limits), "fast_cores.lost")
    late = looks().model_copy(update={"looks": (*(looks().looks or ()), *(looks((4,), 1).looks or ()))})
    caught(cores.judge(late, limits), "fast_cores.lost")
    caught(cores.judge(looks(count=1), limits), "fast_cores.unknown", Verdict.INCONCLUSIVE)
    caught(cores.judge(looks().model_copy(update={"looks": None}), limits), "fast_cores.unknown", Verdict.INCONCLUSIVE)
    caught(cores.judge(looks(count=0), limits), "fast_cores.missing")


# greedy and agreement


def decoded(change: bool = False) -> tuple[greedy.Decoded, ...]:
    return tuple(
        greedy.Decoded(prompt=i, tokens=tuple(range(256)) if not (change and i == 31) else (*range(255), 9), text="x" * 256)
        for i in range(32)
    )


def greedy_evidence(**changes: Any) -> greedy.GreedyEvidence:
    base: dict[str, Any] = {"outputs": decoded(), "reference": decoded(), "reference_of": "the last build", "idle": QUIET}
    return greedy.GreedyEvidence(**{**base, **changes})


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"outputs": decoded(True)}, "greedy.bytes", Verdict.FAILED),
        ({"reference": None}, "greedy.no_reference", Verdict.INCONCLUSIVE),
        ({"reference": decoded()[:31]}, "greedy.reference", Verdict.FAILED),
        ({"outputs": decoded()[:31]}, "greedy.count", Verdict.FAILED),
        ({"idle": QUIET.model_copy(update={"running_before": 1})}, "greedy.idle", Verdict.INCONCLUSIVE),
        ({"idle": QUIET.model_copy(update={"generated": 900})}, "greedy.idle", Verdict.INCONCLUSIVE),
        ({"idle": QUIET.model_copy(update={"generated": None})}, "greedy.idle", Verdict.INCONCLUSIVE),
    ],
)
def test_greedy(changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    passed(greedy.judge_greedy(greedy_evidence(), greedy.GreedyLimits(), 32, 256))
    caught(greedy.judge_greedy(greedy_evidence(**changes), greedy.GreedyLimits(), 32, 256), code, verdict)


def test_the_first_token_that_differs_is_told() -> None:
    fault = greedy.judge_greedy(greedy_evidence(outputs=decoded(True)), greedy.GreedyLimits(), 32, 256).faults[0]
    assert (fault.where, fault.expected, fault.found) == ("prompt 31 token 255", "255", "9")


def test_other_text_from_the_same_tokens_is_a_difference() -> None:
    outputs = (decoded()[0].model_copy(update={"text": "y"}), *decoded()[1:])
    caught(greedy.judge_greedy(greedy_evidence(outputs=outputs), greedy.GreedyLimits(), 32, 256), "greedy.bytes")


def test_agreement() -> None:
    def evidence(agreed: int, reference: str | None = "the baseline") -> greedy.AgreementEvidence:
        prompts = () if reference is None else (greedy.ForcedPrompt(prompt=0, positions=1000, agreed=agreed),)
        return greedy.AgreementEvidence(prompts=prompts, reference_of=reference, idle=QUIET)

    limits = greedy.AgreementLimits(least=0.94)
    passed(greedy.judge_agreement(evidence(943), limits))
    caught(greedy.judge_agreement(evidence(939), limits), "agreement.low")
    caught(greedy.judge_agreement(evidence(0, None), limits), "agreement.no_reference", Verdict.INCONCLUSIVE)


# kl


def scored(shift: float) -> kl.Scored:
    return kl.Scored(prompt=0, decode=(-1.0, -2.0, -0.5), prefill=(-1.0 + shift, -2.0 + shift, -0.5 + shift))


def kl_evidence(short: float = 0.01, long: float = 0.01, repeats: int = 3) -> kl.Evidence:
    made = [kl.Repeat(kind="short", prompts=(scored(short),)) for _ in range(repeats)]
    made += [kl.Repeat(kind="long", prompts=(scored(long),)) for _ in range(repeats)]
    return kl.Evidence(repeats=tuple(made), idle=QUIET)


def test_k3_is_known_and_never_negative() -> None:
    assert kl.k3(scored(0.0)) == [0.0, 0.0, 0.0]
    assert kl.k3(scored(0.3))[0] == pytest.approx(math.exp(0.3) - 1.3)
    assert kl.k3(scored(-0.3))[0] == pytest.approx(math.exp(-0.3) - 0.7)
    assert all(value >= 0 for shift in (-2.0, -0.1, 0.1, 2.0) for value in kl.k3(scored(shift)))


def test_kl() -> None:
    limits = kl.Limits()
    passed(kl.judge(kl_evidence(), limits, 3))
    caught(kl.judge(kl_evidence(short=0.3), limits, 3), "kl.mean")
    passed(kl.judge(kl_evidence(long=0.3), limits, 3))
    caught(kl.judge(kl_evidence(long=0.4), limits, 3), "kl.mean")
    caught(kl.judge(kl_evidence(repeats=2), limits, 3), "kl.count")
    caught(kl.judge(kl_evidence(short=math.nan), limits, 3), "kl.mean")
    caught(kl.judge(kl_evidence(), kl.Limits(maximum=1e-6), 3), "kl.max")
    caught(kl.judge(kl_evidence(), kl.Limits(p99=1e-6), 3), "kl.p99")


def test_kl_of_nothing_fails() -> None:
    empty = kl.Evidence(repeats=(kl.Repeat(kind="short", prompts=()), kl.Repeat(kind="long", prompts=(scored(0),))), idle=QUIET)
    caught(kl.judge(empty, kl.Limits(), 1), "kl.count")
    uneven = scored(0).model_copy(update={"prefill": (-1.0,)})
    one = kl.Evidence(repeats=tuple(kl.Repeat(kind=k, prompts=(uneven,)) for k in ("short", "long")), idle=QUIET)
    caught(kl.judge(one, kl.Limits(), 1), "kl.count")


# tools


def call_reply(case: str, streamed: bool, **changes: Any) -> Reply:
    count = tools.CASES[case].least
    base: dict[str, Any] = {
        "case": case,
        "streamed": streamed,
        "status": 200,
        "content": "" if count else "It is 21 degrees in Paris.",
        "calls": tuple(Call(name="get_weather", arguments=f'{{"city": "{city}"}}') for city in ("Paris", "Oslo")[:count]),
        "finish": "tool_calls" if count else "stop",
    }
    return Reply(**{**base, **changes})


def tool_evidence(case: str = "", streamed: bool = True, **changes: Any) -> tools.Evidence:
    made = [
        call_reply(name, way, **(changes if (name, way) == (case, streamed) else {}))
        for name in tools.CASES
        for way in (False, True)
    ]
    return tools.Evidence(replies=tuple(made))


@pytest.mark.parametrize(
    ("case", "changes", "code"),
    [
        ("none", {"content": "<｜DSML｜invoke name=get_weather>"}, "tools.leak"),
        ("none", {"content": "sure <‖tool"}, "tools.leak"),
        ("auto", {"content": "x</tool_call>"}, "tools.leak"),
        ("auto", {"reasoning": "DSML"}, "tools.leak"),
        ("auto", {"calls": ()}, "tools.calls"),
        ("none", {"calls": (Call(name="get_weather", arguments='{"city": "Paris"}'),)}, "tools.calls"),
        ("named", {"calls": (Call(name="get_time", arguments='{"city": "Paris"}'),)}, "tools.name"),
        ("required", {"calls": (Call(name="rm", arguments="{}"),)}, "tools.name"),
        ("strict", {"calls": (Call(name="get_weather", arguments='{"city": "Paris"'),)}, "tools.arguments"),
        ("strict", {"calls": (Call(name="get_weather", arguments='{"city": "Rome"}'),)}, "tools.arguments"),
        ("strict", {"calls": (Call(name="get_weather", arguments='{"city": "Paris", "x": 1}'),)}, "tools.arguments"),
        ("auto", {"finish": "stop"}, "tools.finish"),
        ("auto", {"finish": None}, "tools.request"),
        ("auto", {"status": 500}, "tools.request"),
        ("multi_turn", {"content": "No idea."}, "tools.answer"),
        ("parallel", {"calls": (Call(name="get_weather", arguments='{"city": "Paris"}'),)}, "tools.calls"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_tools(case: str, changes: dict[str, Any], code: str, streamed: bool) -> None:
    names = tuple(tools.CASES)
    passed(tools.judge(tool_evidence(), tools.Limits(), names))
    judgement = tools.judge(tool_evidence(case, streamed, **changes), tools.Limits(), names)
    caught(judgement, code)
    assert judgement.faults[0].where.startswith(f"{case}, {'streamed' if streamed else 'whole'}")


def test_a_form_that_was_not_asked_fails() -> None:
    fewer = tools.Evidence(replies=tool_evidence().replies[1:])
    caught(tools.judge(fewer, tools.Limits(), tuple(tools.CASES)), "tools.missing")


# thinking


def thought(case: str, streamed: bool, **changes: Any) -> Reply:
    base: dict[str, Any] = {"case": case, "streamed": streamed, "status": 200, "finish": "stop", "content": "Nine sheep."}
    return Reply(**{**base, "reasoning": "All but 9 run away, so 9 stay." if case == "on" else "", **changes})


@pytest.mark.parametrize(
    ("case", "changes", "code"),
    [
        ("on", {"reasoning": ""}, "thinking.absent"),
        ("on", {"content": "so 9 stay</think>Nine."}, "thinking.leak"),
        ("on", {"content": ""}, "thinking.content"),
        ("off", {"reasoning": "All but"}, "thinking.present"),
        ("off", {"content": "<think>All but 9</think>Nine."}, "thinking.leak"),
        ("off", {"finish": None}, "thinking.request"),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_thinking(case: str, changes: dict[str, Any], code: str, streamed: bool) -> None:
    def evidence(change: bool) -> thinking.Evidence:
        pairs = [(c, s) for c in thinking.CASES for s in (False, True)]
        return thinking.Evidence(
            replies=tuple(thought(c, s, **(changes if change and (c, s) == (case, streamed) else {})) for c, s in pairs)
        )

    passed(thinking.judge(evidence(False), thinking.Limits()))
    caught(thinking.judge(evidence(True), thinking.Limits()), code)


# arithmetic


def sums(wrong: int = 0, together: int | None = 16) -> arithmetic.Evidence:
    asked = arithmetic.questions(32)
    replies = tuple(
        Reply(case=f"question {i}", streamed=True, status=200, finish="stop", content=f"It is {q.answer + (i < wrong)}.")
        for i, q in enumerate(asked)
    )
    return arithmetic.Evidence(questions=asked, replies=replies, streams=16, together=together)


def test_arithmetic() -> None:
    limits = arithmetic.Limits(least=0.95)
    passed(arithmetic.judge(sums(), limits))
    passed(arithmetic.judge(sums(wrong=1), limits))
    caught(arithmetic.judge(sums(wrong=3), limits), "arithmetic.wrong")
    caught(arithmetic.judge(sums(together=4), limits), "arithmetic.together", Verdict.INCONCLUSIVE)
    caught(arithmetic.judge(sums(together=None), limits), "arithmetic.unknown", Verdict.INCONCLUSIVE)
    caught(arithmetic.judge(arithmetic.Evidence(questions=(), replies=(), streams=16, together=16), limits), "arithmetic.count")


def test_questions_are_pinned_and_right() -> None:
    assert arithmetic.questions(8) == arithmetic.questions(32)[:8]
    for question in arithmetic.questions(64):
        expression = question.text.removeprefix("What is ").split("?")[0]
        assert eval(expression) == question.answer
    assert arithmetic.answer("So 1,234 it is") == 1234
    assert arithmetic.answer("the answer is -7.") == -7
    assert arithmetic.answer("none") is None


# cache, needle, speculation, speed


def turns(**changes: Any) -> cache.Evidence:
    base: dict[str, Any] = {"turn": 1, "prompt_tokens": 100, "fresh": (1, 2, 3), "restored": (1, 2, 3), "cached_tokens": 96}
    whole = {"host_hits": 96, "host_cache": True}
    one = cache.Turn(**{**base, **{k: v for k, v in changes.items() if k in base}})
    return cache.Evidence(turns=(one,), **{**whole, **{k: v for k, v in changes.items() if k in whole}})


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"restored": (1, 2, 4)}, "cache_restore.changed", Verdict.FAILED),
        ({"restored": (1, 2)}, "cache_restore.changed", Verdict.FAILED),
        ({"cached_tokens": 0}, "cache_restore.missed", Verdict.FAILED),
        ({"cached_tokens": None}, "cache_restore.unknown", Verdict.INCONCLUSIVE),
        ({"host_hits": 0}, "cache_restore.host", Verdict.FAILED),
        ({"host_hits": None}, "cache_restore.unknown", Verdict.INCONCLUSIVE),
    ],
)
def test_cache(changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    passed(cache.judge(turns(), cache.Limits(), 1))
    caught(cache.judge(turns(**changes), cache.Limits(), 1), code, verdict)
    caught(cache.judge(turns(), cache.Limits(), 2), "cache_restore.count")


def test_needle() -> None:
    facts = (needle.Fact(place=0.3, value="123456"), needle.Fact(place=0.6, value="654321"))

    def evidence(**changes: Any) -> needle.Evidence:
        base: dict[str, Any] = {"case": "needle", "streamed": False, "status": 200, "finish": "stop", "content": "123456, 654321"}
        return needle.Evidence(facts=facts, reply=Reply(**{**base, "prompt_tokens": 979971, **changes}))

    passed(needle.judge(evidence(), needle.Limits(), 979971))
    caught(needle.judge(evidence(content="123456"), needle.Limits(), 979971), "needle.lost")
    caught(needle.judge(evidence(prompt_tokens=900000), needle.Limits(), 979971), "needle.short")
    caught(needle.judge(evidence(status=400), needle.Limits(), 979971), "needle.request")
    caught(needle.judge(evidence(prompt_tokens=None), needle.Limits(), 979971), "needle.unknown", Verdict.INCONCLUSIVE)


def story(count: int = 200, accept: float | None = 3.3, **changes: Any) -> speculation.Evidence:
    base: dict[str, Any] = {
        "streamed": True,
        "status": 200,
        "finish": "length",
        "tokens": 128,
        "content": "Once upon a time " * 20,
    }
    replies = tuple(Reply(case=f"request {i}", **{**base, **(changes if i == 7 else {})}) for i in range(count))
    return speculation.Evidence(replies=replies, prompt_tokens=291, speculative=True, accept_length=accept)


@pytest.mark.parametrize(
    ("changes", "code", "verdict"),
    [
        ({"content": "the " * 60}, "speculation.loop", Verdict.FAILED),
        ({"content": "bad \ufffd"}, "speculation.corrupt", Verdict.FAILED),
        ({"content": " "}, "speculation.corrupt", Verdict.FAILED),
        ({"tokens": 90}, "speculation.cut", Verdict.FAILED),
        ({"finish": None}, "speculation.request", Verdict.FAILED),
        ({"count": 199}, "speculation.count", Verdict.FAILED),
        ({"accept": 1.1}, "speculation.accept_length", Verdict.FAILED),
        ({"accept": math.nan}, "speculation.accept_length", Verdict.FAILED),
        ({"accept": None}, "speculation.unknown", Verdict.INCONCLUSIVE),
    ],
)
def test_speculation(changes: dict[str, Any], code: str, verdict: Verdict) -> None:
    passed(speculation.judge(story(), speculation.Limits(), 200, 128))
    caught(speculation.judge(story(**changes), speculation.Limits(), 200, 128), code, verdict)


def runs(seconds: float = 0.35, **changes: Any) -> speed.Evidence:
    one = speed.Run(tokens=300, first_tokens=1, seconds=seconds, first_s=0.04)
    return speed.Evidence(runs=(one,) * 8, idle=changes.get("idle", QUIET))


def test_speed() -> None:
    limits = speed.Limits(floor=770)
    passed(speed.judge(runs(), limits, 8, 300))
    caught(speed.judge(runs(0.5), limits, 8, 300), "speed.slow")
    caught(speed.judge(runs(0.0), limits, 8, 300), "speed.slow")
    caught(speed.judge(runs(), speed.Limits(), 8, 300), "speed.no_floor", Verdict.INCONCLUSIVE)
    caught(speed.judge(runs(), limits, 9, 300), "speed.count")
    caught(
        speed.judge(runs(idle=QUIET.model_copy(update={"running_before": 2})), limits, 8, 300), "speed.idle", Verdict.INCONCLUSIVE
    )


def test_both_rates_are_recorded_and_differ_as_they_should() -> None:
    figures = speed.judge(runs(0.35), speed.Limits(floor=770), 8, 300).figures
    assert figures["tokens_per_s"] == pytest.approx(299 / 0.35)
    assert float(figures["tokens_per_s_published"] or 0) / float(figures["tokens_per_s"] or 1) == pytest.approx(300 / 299)
