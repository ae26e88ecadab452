"""Every gate there is, in the order in which they are shown, and what each is for. Pure."""

from __future__ import annotations

from typing import Literal, get_args

GateName = Literal[
    "hardware",
    "image",
    "configuration",
    "plugin",
    "graphs",
    "fast_cores",
    "greedy",
    "agreement",
    "kl",
    "tools",
    "thinking",
    "arithmetic",
    "cache_restore",
    "needle",
    "speculation",
    "speed",
]
GATES: tuple[GateName, ...] = get_args(GateName)
ABOUT: dict[GateName, str] = {
    "hardware": "GPUs, clocks and fabric are still as planned, no new Xid",
    "image": "the files that run are the image's",
    "configuration": "the engine resolved its arguments to what the profile says",
    "plugin": "the megakernel is active on every rank, all slots, the right interface",
    "graphs": "every rank captured every decode graph",
    "fast_cores": "each scheduler sits, and stays, on its fast core",
    "greedy": "the same bytes as the accepted build of this numerics class",
    "agreement": "fed the reference's text, the same top token",
    "kl": "decode and prefill give the same probabilities",
    "tools": "tool calls in every form, none leaked",
    "thinking": "reasoning apart from content, and only when asked for",
    "arithmetic": "right answers with many streams at once",
    "cache_restore": "a conversation whose cache came back from host memory goes on as if it never left",
    "needle": "a fact hidden in a long prompt is found",
    "speculation": "many short requests at once stay whole, drafts are accepted",
    "speed": "one stream decodes at least as fast as the floor",
}
ALONE: frozenset[GateName] = frozenset({"greedy", "agreement", "kl", "cache_restore", "speculation", "speed"})
"""Need an idle engine: the make-up of a batch changes bytes and speed. Each runs with nothing beside it."""
