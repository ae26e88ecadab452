"""Turns text into pinned prompts with a model's own tokenizer. Runs in the engine's Python.

In: ``{"model": folder, "text": "...", "short": [count, tokens], "long": [count, tokens]}``. Out: the prompts' document.
"""

from __future__ import annotations

import hashlib
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path

FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")


def main() -> None:
    """Cut the text's ids into prompts, one after another; too little text is an error, not a repeat."""
    asked = json.load(sys.stdin)
    with redirect_stdout(sys.stderr):
        from transformers import AutoTokenizer

        ids = AutoTokenizer.from_pretrained(asked["model"])(asked["text"])["input_ids"]
    out: dict[str, list[list[int]]] = {}
    at = 0
    for kind in ("short", "long"):
        count, tokens = asked[kind]
        out[kind] = [ids[at + i * tokens : at + (i + 1) * tokens] for i in range(count)]
        at += count * tokens
    if at > len(ids):
        sys.exit(f"the text has {len(ids)} tokens, {at} are needed")
    digest = hashlib.sha256()
    for name in FILES:
        path = Path(asked["model"]) / name
        if path.exists():
            digest.update(path.read_bytes())
    json.dump({"tokenizer_sha256": digest.hexdigest(), **out}, sys.stdout)


if __name__ == "__main__":
    main()
